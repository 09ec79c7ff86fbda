"""chain, check, evict and status against a gliad that says what it is told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daemon.cli import main
from glia.local import values
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import TIP, World, say, window
from tests.fake_gliad import FakeGliad


def test_chain_shows_windows_and_their_text(
    gliad: FakeGliad, world: World, capfd: Any, tmp_path: Path
) -> None:
    text = "0123456789abcdé and the rest, é, of two and more windows ok"
    tokens = Tokenizer.load(tmp_path / "model").encode(text)
    parts = [tokens[at : at + 15] for at in range(0, len(tokens), 15)]
    world.windows = [window(part, i) for i, part in enumerate(parts)]
    said = say(capfd, "chain", TIP.hex(), "--json")
    assert [sorted(row) for row in said.json] == [
        ["blocks", "model_id", "numerics_class", "position_start", "text", "tokens", "window"]
    ] * len(parts)
    first = said.json[0]
    assert first["window"] == "00" * 32
    assert first["blocks"] == ["61" * 32, "62" * 32]
    assert first["text"] == "0123456789abcd"
    assert [row["position_start"] for row in said.json] == [16 * i for i in range(len(parts))]
    assert "".join(row["text"] for row in said.json) == text
    assert [row["tokens"] for row in said.json] == parts
    assert "0123456789abcd" in say(capfd, "chain", TIP.hex()).out


def test_chain_of_a_model_not_known_here_has_no_text(
    gliad: FakeGliad, world: World, capfd: Any
) -> None:
    world.windows = [window([1, 2], 0, model_id=b"x" * 32)]
    assert [row["text"] for row in say(capfd, "chain", TIP.hex(), "--json").json] == [None]
    assert "no tokenizer here" in say(capfd, "chain", TIP.hex()).out


@pytest.mark.parametrize("tip", ["", "abc", "zz" * 32, "ab" * 33])
def test_chain_wants_a_name(tip: str, gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "chain", tip)
    assert said.code == 2
    assert said.hint.startswith("hint: a name is 64 hex digits; the first 8 of them")


def test_check_counts_and_fails_where_something_is_bad(
    gliad: FakeGliad, world: World, capfd: Any
) -> None:
    said = say(capfd, "check", "--json")
    assert (said.code, said.json["checked"], said.json["bad"]) == (0, 60, 0)
    world.bad = 1
    said = say(capfd, "check", "--json")
    assert (said.code, said.json["bad"]) == (4, 1)
    assert "CHECKED" in say(capfd, "check").out


def test_evict(gliad: FakeGliad, capfd: Any) -> None:
    expected = {"tier": "l1", "freed_bytes": 5 * 2**20, "freed_windows": 7}
    assert say(capfd, "evict", "--tier", "l1", "--json").json == expected
    assert say(capfd, "evict", "--tier", "l0").out == "l0: 5.0 MiB in 7 windows given back\n"
    with pytest.raises(SystemExit) as caught:
        main(["evict", "--tier", "l2"])
    assert caught.value.code == 2


def test_gc_says_what_it_freed(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "gc")
    assert said.out == "2 conversations forgotten, 3 windows dropped, 5.0 MiB given back\n"
    said = say(capfd, "gc", "--unreferenced", "--json")
    assert said.json == {"conversations": 2, "windows": 30, "freed_bytes": 5 * 2**20}


def test_status_shows_what_engines_do(gliad: FakeGliad, world: World, capfd: Any) -> None:
    world.engines = [
        values.EngineValue("a", "float32", "starting", 9, loading="hashing", done=3, total=7),
        values.EngineValue("b", "float32", "starting", loading="waiting for memory"),
        values.EngineValue("c", "bfloat16", "ready", 10, memory_bytes=3 * 2**30, idle_s=90.0),
    ]  # fmt: skip
    out = say(capfd, "status").out
    assert "a: hashing 42%\n" in out
    assert "b: waiting for memory\n" in out
    assert ["c", "bfloat16", "ready", "10", "3.0", "GiB", "1", "min", "0", "0", "0"] in [
        line.split() for line in out.splitlines()
    ]


def test_status(gliad: FakeGliad, capfd: Any) -> None:
    found = say(capfd, "status", "--json").json
    assert {"version", "pid", "socket", "data_dir", "tiers", "engines"} <= found.keys()
    assert found["tiers"]["l1"] == {
        "used_bytes": 2**30, "cap_bytes": 2**31, "windows": 0, "hits": 1234, "misses": 0,
        "evictions": 0, "quarantined": 0,
    }  # fmt: skip
    out = say(capfd, "status").out
    assert "1.0 GiB  2.0 GiB" in out
    assert "it broke" in out
