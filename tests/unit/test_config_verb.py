"""config: values that can be read back, where each came from, and what a running gliad has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.config import load_config
from daemon.settings import as_text, origins
from tests.cli_parts import World, say
from tests.fake_gliad import FakeGliad

CHANGED = """
models_dir = "/where it is"
[l0]
size = "3MiB"

[engine]
idle_unload_s = 0.5
memory = "1.5GiB"
preload = ["a", "é"]
[http]
require_key = false
"""


def written(values: dict[str, str]) -> str:
    """A glia.toml with exactly these values."""
    sections: dict[str, list[str]] = {"": []}
    for key, value in values.items():
        name, _, last = key.rpartition(".")
        sections.setdefault(name, []).append(f"{last} = {value}")
    parts = [f"[{name}]" * bool(name) + "\n" + "\n".join(ls) for name, ls in sections.items()]
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("text", ["", CHANGED])
def test_what_it_shows_gives_the_same_settings(text: str, tmp_path: Path) -> None:
    (tmp_path / "glia.toml").write_text(text)
    config = load_config(tmp_path, None, {})
    (tmp_path / "glia.toml").write_text(written(as_text(config)))
    assert load_config(tmp_path, None, {}) == config


def test_where_each_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(CHANGED)
    found = origins(tmp_path, file, {})
    given = {key: where for key, where in found.items() if where != "default"}
    assert given == {
        "models_dir": f"{file}:2",
        "l0.size": f"{file}:4",
        "engine.idle_unload_s": f"{file}:7",
        "engine.memory": f"{file}:8",
        "engine.preload": f"{file}:9",
        "http.require_key": f"{file}:11",
    }
    assert origins(tmp_path, file, {"GLIA_MODELS_DIR": "/e"})["models_dir"] == "GLIA_MODELS_DIR"
    assert set(origins(tmp_path, None, {}).values()) == {"default"}
    assert found.keys() == as_text(load_config(tmp_path, file, {})).keys()


def test_without_a_gliad(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "glia.toml").write_text('[l0]\nsize = "2MiB"\n')
    said = say(capfd, "config", "--data-dir", str(tmp_path))
    assert said.code == 0
    (line,) = [line for line in said.out.splitlines() if line.startswith("l0.size")]
    assert line.split() == ["l0.size", '"2MiB"', f"{tmp_path}/glia.toml:2"]
    assert said.err == "no gliad is running here\n"


def test_an_unknown_key_is_refused(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "glia.toml").write_text("[l0]\nsizes = 2\n")
    said = say(capfd, "config", "--data-dir", str(tmp_path), "--json")
    assert (said.code, said.out) == (2, "")
    assert "glia.toml:2: l0.sizes: unknown key" in said.err


def test_a_gliad_that_was_started_with_others(
    gliad: FakeGliad, world: World, tmp_path: Path, capfd: Any
) -> None:
    world.settings = as_text(load_config(tmp_path, None, {}))
    assert say(capfd, "config").err == ""
    world.settings = {**world.settings, "l1.size": '"7MiB"'}
    said = say(capfd, "config")
    assert 'the running gliad has another: l1.size = "7MiB"' in said.err
    assert said.hint == "to give it these settings: gliad stop, then gliad start"
    row = next(row for row in say(capfd, "config", "--json").json if row["key"] == "l1.size")
    assert row == {
        "key": "l1.size",
        "value": "1GiB",
        "origin": "default",
        "running": "7MiB",
    }


def test_values_are_values_of_json(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "glia.toml").write_text(CHANGED)
    rows = say(capfd, "config", "--data-dir", str(tmp_path), "--json").json
    found = {row["key"]: row["value"] for row in rows}
    assert found["l0.size"] == "3MiB"
    assert found["l1.hot_steps"] == 64
    assert found["engine.idle_unload_s"] == 0.5
    assert found["engine.preload"] == ["a", "é"]
    assert found["http.require_key"] is False
    assert {row["running"] for row in rows} == {None}
