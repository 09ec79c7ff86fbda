"""doctor: what it finds in a good place, and in places with one thing wrong."""

from __future__ import annotations

import json
import os
import re
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from daemon.config import load_config
from daemon.doctor import disk, groups, memory, models, network, places, software
from daemon.doctor.finding import Finding, Subject, examine
from daemon.machine import memory_bytes
from daemon.paths import Paths
from glia.local import messages as m
from glia.local import values
from glia.local.group_values import GroupValue
from glia.local.network_values import NetworkValue
from glia.store.disk import DiskStore
from tests.cli_parts import World, say
from tests.fake_gliad import FakeGliad
from tests.pace import Stopwatch


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data dir with everything right, and a model."""
    models_dir, data_dir = tmp_path / "models", tmp_path / "node"
    models_dir.mkdir()
    monkeypatch.setenv("GLIA_MODELS_DIR", str(models_dir))
    for name in ("", "store", "models", "conversations"):
        (data_dir / name).mkdir(mode=0o700)
    (data_dir / "glia.toml").write_text('[l0]\nsize = "1MiB"\n[l2]\nsize = "1MiB"\n')
    (data_dir / "glia.toml").chmod(0o644)
    write_model(models_dir / "tiny")
    monkeypatch.setattr(os, "scandir", _scandir)
    return data_dir


def _scandir(path: Any = ".", real: Any = os.scandir) -> Any:
    if str(path).endswith("/unreadable"):
        raise PermissionError(13, "Permission denied", path)
    return real(path)


def write_model(directory: Path) -> None:
    directory.mkdir()
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    (directory / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(4)
    )
    (directory / "config.json").write_text('{"model_type": "llama"}')


def findings(data_dir: Path, capfd: Any) -> tuple[int, dict[str, dict[str, str]]]:
    said = say(capfd, "doctor", "--data-dir", str(data_dir), "--json")
    return said.code, {row["name"]: row for row in said.json}


def subject(data_dir: Path) -> Subject:
    return Subject(load_config(data_dir, None, os.environ), Paths(data_dir), None)


def test_all_is_well(place: Path, capfd: Any) -> None:
    watch = Stopwatch()
    code, found = findings(place, capfd)
    assert code == 0
    assert watch.took_s() < 10
    assert {name for name, row in found.items() if row["verdict"] == "bad"} == set()
    for name in ("permissions", "python", "torch", "memory", "disk", "reading", "clock"):
        assert found[name]["verdict"] in ("ok", "warn"), found[name]
    assert found["permissions"]["verdict"] == found["model tiny"]["verdict"] == "ok"
    assert sorted(os.listdir(place)) == ["conversations", "glia.toml", "models", "store"]
    assert "VERDICT" in say(capfd, "doctor", "--data-dir", str(place)).out


def test_a_place_that_is_not_there_yet(tmp_path: Path, capfd: Any) -> None:
    _, found = findings(tmp_path / "a" / "b", capfd)
    assert found["data dir"]["verdict"] == "ok"
    assert not (tmp_path / "a").exists()


def open_up(data_dir: Path) -> None:
    (data_dir / "store").chmod(0o750)


def be_unreadable(data_dir: Path) -> None:
    """Root could read it; so the listing fails by itself (see `place`)."""
    (data_dir / "store" / "unreadable").mkdir(mode=0o700)


def misspell(data_dir: Path) -> None:
    (data_dir / "glia.toml").write_text("[l0]\nsizes = 1\n")


def starve(data_dir: Path) -> None:
    (data_dir / "glia.toml").write_text('[engine]\nmemory = "100MiB"\n')


def set_the_clock_back(data_dir: Path) -> None:
    os.utime(data_dir / "store", (time.time() + 9999,) * 2)


def break_a_model(data_dir: Path) -> None:
    (data_dir.parent / "models" / "tiny" / "model.safetensors").write_bytes(b"torn")


def misname_a_key(data_dir: Path) -> None:
    (data_dir.parent / "models" / "m.model").write_text('sauce = "x"\n')


def have_no_model(data_dir: Path) -> None:
    (data_dir.parent / "models" / "tiny").rename(data_dir.parent / "away")


@pytest.mark.parametrize(
    ("spoil", "name", "verdict", "change"),
    [
        (open_up, "permissions", "bad", "chmod -R go-rwx"),
        (be_unreadable, "permissions", "bad", "chmod -R u+rwX"),
        (misspell, "settings", "bad", "known here"),
        (starve, "memory", "bad", "[engine] memory"),
        (set_the_clock_back, "clock", "warn", "set the clock"),
        (break_a_model, "model tiny", "warn", "get the file"),
        (misname_a_key, "model m", "warn", "known here"),
        (have_no_model, "models", "warn", "gliad models add"),
    ],
)
def test_one_thing_wrong(
    spoil: Callable[[Path], None], name: str, verdict: str, change: str, place: Path, capfd: Any
) -> None:
    spoil(place)
    code, found = findings(place, capfd)
    assert found[name]["verdict"] == verdict, found[name]
    assert change in found[name]["change"]
    assert code == int(verdict == "bad")
    said = say(capfd, "doctor", "--data-dir", str(place))
    assert f"{verdict}: {name}: " in said.err


def test_every_file_is_looked_at(place: Path) -> None:
    for number in range(21):
        many = place / "store" / f"{number:02}"
        many.mkdir(mode=0o700)
        for name in range(1000):
            os.close(os.open(many / str(name), os.O_CREAT, 0o600))
    for name in ("00", "20"):
        (place / "store" / name / "999").chmod(0o640)
    (place / "store" / "elsewhere").symlink_to(place.parent / "models")  # open to others
    found = {f.name: f for f in places.look(subject(place))}
    names = found["permissions"].found.removeprefix("open to other users: ").split(", ")
    assert set(names) == {"store/00/999", "store/20/999"}


def test_few_descriptors(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, verdict in ((128, "bad"), (1024, "warn"), (65536, "ok"), (-1, "ok")):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        found = {f.name: f.verdict for f in memory.look(subject(place))}
        assert found["RLIMIT_NOFILE"] == verdict


def test_a_full_or_slow_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = disk.shutil._ntuple_diskusage  # type: ignore[attr-defined]
    for free, verdict in ((2**20, "bad"), (100 * 2**20, "warn"), (2**40, "ok")):
        (place / "glia.toml").write_text('[l2]\nsize = "1GiB"\n')
        monkeypatch.setattr(disk.shutil, "disk_usage", lambda _, free=free: usage(1, 1, free))
        found = {f.name: f for f in disk.look(subject(place))}
        assert found["disk"].verdict == verdict
        assert ("reading" in found) is (free == 2**40)
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (time.sleep(0.5), sync(fd)))
    watch = Stopwatch()
    found = {f.name: f for f in disk.look(subject(place))}
    assert watch.took_s() < 6
    assert found["writing and syncing"].verdict == found["fdatasync"].verdict == "warn"


def test_what_cannot_be_looked_at_is_told(place: Path) -> None:
    def broken(_: Subject) -> Any:
        yield Finding("x", "ok", "y")
        raise PermissionError(13, "Permission denied", "/z")

    first, second = examine("disk", broken, subject(place))
    assert first.name == "x"
    assert (second.verdict, second.found) == ("bad", "cannot be looked at: /z: Permission denied")


def test_a_package_that_is_missing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        "starlette>=1.10",
        "no-such-package_anywhere<2,>=1; python_version > '3'",
        "x>1; extra == 'y'",
    ]
    monkeypatch.setattr(software, "requires", lambda name: asked if name == "gliad" else [])
    found = {f.name: f for f in software.look(subject(place))}
    assert found["starlette"].verdict == found["gliad"].verdict == "ok"
    assert found["no-such-package_anywhere"].verdict == "bad"
    assert "x" not in found


def test_everything_that_is_needed_is_looked_at(place: Path) -> None:
    """Each of pyproject.toml, as it is installed."""
    needed = {
        re.split("[<=>;]", line)[0] for line in requires("gliad") or [] if "extra ==" not in line
    }
    assert needed >= {"torch", "trio", "tokenizers"}
    found = {f.name: f.verdict for f in software.look(subject(place))}
    assert {found[name] for name in needed} == {"ok"}


def test_a_running_gliad_is_asked(gliad: FakeGliad, world: World, capfd: Any) -> None:
    world.settings = {"l1.size": '"7MiB"', "network.listen": '["by --listen"]'}
    world.engines = [values.EngineValue("tiny", "float32", "failed", error="it broke")]
    said = say(capfd, "doctor", "--json")
    found = {row["name"]: row for row in json.loads(said.out)}
    assert found["gliad runs"]["found"].startswith("pid 7")
    assert "l1.size" in found["gliad's settings"]["found"]
    assert "network" not in found["gliad's settings"]["found"]
    assert found["engine of tiny"]["found"] == "it broke"
    assert "free memory" not in found  # gliad itself has it


@pytest.mark.parametrize("how", ["moved", "another one", "no index"])
def test_a_store_that_a_running_gliad_has_no_more_is_told(
    place: Path, world: World, how: str
) -> None:
    store = DiskStore(place / "store", 1024 * 1024)
    [status] = world.answer(m.Status(1))
    assert isinstance(status, m.StatusReply)
    running = replace(subject(place), status=status)

    def found() -> Finding:
        return {f.name: f for f in disk.look(running)}["store"]

    assert found().verdict == "ok"
    away = place / "store.away"
    (place / "store").rename(away)
    if how == "another one":
        (place / "store" / "index").mkdir(parents=True, mode=0o700)
        (place / "store" / "lock").touch(mode=0o600)
    elif how == "no index":
        away.rename(place / "store")
        away = place / "index.away"
        (place / "store" / "index").rename(away)
    assert found().verdict == "bad"
    assert "gliad stop, then gliad start" in found().change
    assert "store" not in {f.name for f in disk.look(subject(place))}
    if how == "moved":
        away.rename(place / "store")
        assert found().verdict == "ok"
    store.close()


def test_memory_of_containers_counts(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:  1000 kB\nMemAvailable:  500 kB\n")
    assert memory_bytes(proc, groups) == 1_024_000
    (proc / "self" / "cgroup").write_text("4:memory:/a/b\n1:cpu:/c\n0::/u/v\n")
    for path, text in (("memory/a", "memory.limit_in_bytes"), ("u/v", "memory.max")):
        (groups / path).mkdir(parents=True)
        (groups / path / text).write_text("700000\n" if path == "u/v" else "9223372036854771712")
    assert memory_bytes(proc, groups) == 700_000
    (groups / "memory/a/memory.limit_in_bytes").write_text("600000")
    (groups / "u/v/memory.max").write_text("max\n")
    assert memory_bytes(proc, groups) == 600_000
    (groups / "memory.max").write_text("5000")
    assert memory_bytes(proc, groups) == 5000


def test_a_manifest_in_the_data_dir_comes_first(place: Path) -> None:
    write_model(place / "other")
    (place / "models" / "tiny.model").write_text(f'source = "{place}/other"\n')
    (found,) = models.look(subject(place))
    assert found.found.endswith("/other")


def status_with(found: NetworkValue | None) -> m.StatusReply:
    return m.StatusReply(1, "0.1.0", 7, "s", "d", 1.0, {}, [], {}, None, {}, found)


ON = NetworkValue("12D3", ["/ip4/192.0.2.1/tcp/4001/p2p/12D3"], 1, "", 2, "on")


@pytest.mark.parametrize(
    ("settings", "status", "expected"),
    [
        ("", None, [("ok", "listens at /ip4/0.0.0.0/tcp/0; nodes on this LAN are looked for")]),
        ("mdns = false", None, [("ok", "nodes on this LAN are not looked for")]),
        ("enabled = false", None, [("ok", "off: this node neither")]),
        ("", status_with(None), [("ok", "--offline")]),
        ("enabled = false", status_with(None), [("ok", "enabled = false")]),
        (
            "",
            status_with(ON),
            [("ok", "at /ip4/192.0.2.1/tcp/4001"), ("ok", "find it"), ("ok", "1 of 2 known")],
        ),
        (
            "",
            status_with(structs.replace(ON, twin="/ip4/192.0.2.9/tcp/1/p2p/12D3")),
            [("ok", "at"), ("bad", "peer id: /ip4/192.0.2.9"), ("ok", "find it"), ("ok", "known")],
        ),
        (
            "mdns = false",
            status_with(structs.replace(ON, mdns="off", num_known=0, num_connected=0)),
            [("ok", "at /ip4"), ("ok", "mdns = false"), ("ok", "gliad peers add")],
        ),
        (
            'listen = ["/ip4/127.0.0.1/tcp/0"]',
            status_with(structs.replace(ON, mdns="off")),
            [("ok", "at /ip4"), ("ok", "could reach it"), ("ok", "known")],
        ),
        (
            "",
            status_with(structs.replace(ON, mdns="alone")),
            [("ok", "at"), ("ok", "than loopback"), ("ok", "")],
        ),
        (
            "",
            status_with(structs.replace(ON, why_off="cannot listen on X", mdns="[Errno 19] no")),
            [("warn", "off: cannot listen on X"), ("warn", "not found: [Errno 19] no"), ("ok", "")],
        ),
        (
            "",
            status_with(NetworkValue("", [], 0, "it is being joined")),
            [("warn", "not yet on: it is being joined")],
        ),
    ],
)
def test_how_the_network_is(
    place: Path, settings: str, status: m.StatusReply | None, expected: list[tuple[str, str]]
) -> None:
    (place / "glia.toml").write_text(f"[network]\n{settings}\n")
    found = list(network.look(replace(subject(place), status=status)))
    assert [finding.verdict for finding in found] == [verdict for verdict, _ in expected]
    for finding, (verdict, says) in zip(found, expected, strict=True):
        assert says in finding.found
        assert bool(finding.change) is (verdict != "ok")


@pytest.mark.parametrize(
    ("change", "verdict", "found"),
    [
        ({}, "ok", "member, epoch 3"),
        ({"expires_s": 1}, "warn", "may nothing there"),
        ({"list_s": 1}, "warn", "serves nobody"),
        ({"list_s": 1, "expires_s": None, "role": "issuer", "homes": []}, "warn", "serves nobody"),
    ],
)
def test_groups(place: Path, change: dict[str, Any], verdict: str, found: str) -> None:
    now_s = int(time.time())
    group = GroupValue(
        bytes(32), "friends", "member", 3, 3, now_s, ["fetch"], now_s, 0, now_s + 3600, ["HOME"]
    )
    status = m.StatusReply(
        1, "0", 1, "s", "d", 1.0, {}, [], {}, groups=[structs.replace(group, **change)]
    )
    (said,) = groups.look(replace(subject(place), status=status))
    assert (said.name, said.verdict) == ("group friends", verdict)
    assert found in said.found
    assert bool(said.change) == (verdict == "warn")
    assert list(groups.look(subject(place))) == []
