"""glia.toml: every key is documented, and every mistake names file, line and key."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from daemon.config import Config, load_config
from daemon.paths import default_data_dir, default_models_dir
from glia.errors import ConfigError

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "glia.toml"
PEER = "12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo"
SECTIONS = (
    "l0", "l1", "l2", "engine", "api", "log", "conversations", "checkpoint", "http", "network",
)  # fmt: skip


def config_of(tmp_path: Path, text: str) -> Config:
    (tmp_path / "glia.toml").write_text(text)
    return load_config(tmp_path, None, {})


def test_the_reference_documents_every_key_with_its_default(tmp_path: Path) -> None:
    plain = load_config(tmp_path, None, {})
    assert load_config(tmp_path, REFERENCE, {}) == plain
    assert plain == Config(data_dir=tmp_path, models_dir=ROOT / "models")
    documented = tomllib.loads(REFERENCE.read_text())
    fields = {f.name: f.default_factory for f in dataclasses.fields(Config)}
    assert set(documented) == {"models_dir", *SECTIONS}
    for name in SECTIONS:
        factory: Any = fields[name]
        assert len(documented[name]) == len(dataclasses.fields(factory)), name


def test_every_documented_key_takes_effect(tmp_path: Path) -> None:
    changed = {
        "l0": 'size = "2MiB"',
        "l1": 'size = "1.5GiB"\nhot_steps = 1\nstaging_size = "3MiB"\nprefault_size = "0B"',
        "l2": 'size = "1TiB"\nsegment_size = "2MiB"',
        "engine": "num_threads = 3\nmax_running = 1\nprefill_tokens = 32\n"
        "start_timeout_s = 9\nstall_timeout_s = 9\nmax_restarts = 0\nidle_unload_s = 5\n"
        'memory = "3GiB"\npreload = ["a", "b"]',
        "api": "handshake_timeout_s = 0.5\nmax_clients = 2\nmax_waiting = 1",
        "log": 'level = "debug"\nmax_size = "64 KiB"\nnum_files = 1',
        "conversations": "anonymous_hours = 1.5\nmax_anonymous = 3\nvisibility = 'public'",
        "checkpoint": 'every_hours = 1\npath = "/s/soul.glia"\nkeep = 0\nlease_hours = 2\n'
        "give_windows = true",
        "network": 'enabled = false\nlisten = ["/ip6/::1/tcp/0"]\n'
        f'bootstrap = ["/ip4/127.0.0.1/tcp/1/p2p/{PEER}"]\nmdns = false\npsk = "{"aB" * 32}"\n'
        'announce = "off"\nannounce_hold_s = 1\nreplicas = 0\nupload = "1MiB"\n'
        'accept = "own"\n'
        'exact = "required"',
        "http": 'listen = "[::1]:8080"\nrequire_key = false\nmax_requests = 1',
    }
    text = 'models_dir = "/m"\n' + "".join(f"[{name}]\n{body}\n" for name, body in changed.items())
    config, plain = config_of(tmp_path, text), Config(tmp_path, Path("/m"))
    assert config.models_dir == Path("/m")
    for name in SECTIONS:
        section, default = getattr(config, name), getattr(plain, name)
        for field in dataclasses.fields(section):
            assert getattr(section, field.name) != getattr(default, field.name), field.name
    assert config.l1.size_bytes == 3 * 2**29
    assert config.log.max_bytes == 65536


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("l0 = 1", "glia.toml:1: l0", "table"),
        ("\n\n[l0]\nsizes = 1", "glia.toml:4: l0.sizes", "unknown key"),
        ("[l9]", "glia.toml:1: l9", "unknown key"),
        ("[l0]\nsize = 5", "glia.toml:2: l0.size", "string"),
        ('[l0]\nsize = "5"', "glia.toml:2: l0.size", "not a size"),
        ('[l0]\nsize = "-1GiB"', "glia.toml:2: l0.size", "not a size"),
        ('[l0]\nsize = "1GB"', "glia.toml:2: l0.size", "not a size"),
        ('[l0]\nsize = "1KiB"', "glia.toml:2: l0.size", "1MiB to 64TiB"),
        ('[l2]\nsize = "65TiB"', "glia.toml:2: l2.size", "64TiB"),
        ("[engine]\nmax_running = 0", "glia.toml:2: engine.max_running", "from 1"),
        ("[engine]\nmax_running = true", "glia.toml:2: engine.max_running", "whole"),
        ("[engine]\nstart_timeout_s = nan", "glia.toml:2: engine.start_timeout_s", "from"),
        ('[log]\nlevel = "loud"', "glia.toml:2: log.level", "unknown value"),
        ('models_dir = "here"', "glia.toml:1: models_dir", "absolute"),
        ('[http]\nlisten = "0.0.0.0:80"', "glia.toml:2: http.listen", "loopback"),
        ('[http]\nlisten = "127.0.0.1:0"', "glia.toml:2: http.listen", "loopback"),
        ('[http]\nlisten = "localhost:80"', "glia.toml:2: http.listen", "loopback"),
        ('[engine]\npreload = ["a", "b", "a"]', "glia.toml:2: engine.preload", "a name twice"),
        ("[engine]\npreload = [1]", "glia.toml:2: engine.preload", "list of strings"),
        ('[network]\nlisten = ["localhost:1"]', "glia.toml:2: network.listen", "not an address"),
        ('[network]\nlisten = ["/ip4/::1/tcp/1"]', "glia.toml:2: network.listen", "not an address"),
        ('[network]\nlisten = ["/ip4/1.2.3.4/tcp/65536"]', "glia.toml:2: network.listen", "not an"),
        ('[network]\nbootstrap = ["/ip4/1.2.3.4/tcp/1"]', "glia.toml:2: network.bootstrap", "not"),
        ('[network]\npsk = "ab"', "glia.toml:2: network.psk", "64 hex digits"),
        ("[conversations]\nvisibility = 'group:'", "glia.toml:2: conversations", "group:NAME"),
        ("[conversations]\nvisibility = 'aggregate'", "glia.toml:2: conversations", "group:NAME"),
        ("[l0\n", "glia.toml:1", ""),
    ],
)
def test_a_mistake_names_its_place(text: str, where: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(tmp_path, text)
    assert f"{tmp_path}/{where}" in caught.value.message
    assert says in caught.value.message


def test_which_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "glia.toml").write_text("[engine]\nmax_running = 2")
    other = tmp_path / "other.toml"
    other.write_text("[engine]\nmax_running = 3")
    assert load_config(tmp_path, None, {}).engine.max_running == 2
    assert load_config(tmp_path, other, {}).engine.max_running == 3
    for missing in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(ConfigError):
            load_config(tmp_path, missing, {})


def test_where_a_node_lives(tmp_path: Path) -> None:
    assert default_data_dir({"GLIA_DATA_DIR": "/d"}) == Path("/d")
    assert default_data_dir({"GLIA_DATA_DIR": "d"}) == Path.cwd() / "d"
    assert default_data_dir({"XDG_DATA_HOME": "/x"}) == Path("/x/glia")
    assert default_data_dir({"XDG_DATA_HOME": "x"}) == Path.home() / ".local/share/glia"
    assert default_data_dir({}) == Path.home() / ".local/share/glia"


def test_where_models_are_looked_for(tmp_path: Path) -> None:
    assert default_models_dir({}) == ROOT / "models"
    assert default_models_dir({"GLIA_MODELS_DIR": "/m"}) == Path("/m")
    (tmp_path / "glia.toml").write_text('models_dir = "/f"')
    assert load_config(tmp_path, None, {}).models_dir == Path("/f")
    assert load_config(tmp_path, None, {"GLIA_MODELS_DIR": "/m"}).models_dir == Path("/m")
