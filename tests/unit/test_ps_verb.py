"""gliad ps against a gliad that says what it is told to."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from msgspec import structs

from glia.local.values import CachedValue, RunValue
from tests.cli_parts import World, say
from tests.fake_gliad import FakeGliad


@pytest.fixture
def runs(world: World) -> list[RunValue]:
    done = RunValue(
        number=1,
        model="tiny",
        dtype="float32",
        conversation="story",
        state="stop",
        started_s=time.time() - 125,
        duration_ms=2000.0,
        prompt_tokens=4097,
        completion_tokens=41,
        cached=CachedValue(l0=2000, l1=2000),
        computed=97,
        ttft_ms=120.0,
        tokens_per_s=21.3,
    )
    world.runs = [
        RunValue(4, "tiny", "float32", "", "loading", time.time(), 10.0, 1000),
        structs.replace(done, number=3, state="failed", computed=0, error="it broke"),
        structs.replace(done, number=2, prompt_tokens=32, cached=CachedValue(l2=16), computed=16),
        done,
    ]
    return world.runs


def test_ps_shows_what_was_spared(gliad: FakeGliad, runs: list[RunValue], capfd: Any) -> None:
    lines = say(capfd, "ps").out.splitlines()
    assert lines[0].split() == [
        "MODEL", "CONVERSATION", "STATE", "BEGUN", "PROMPT", "L0", "L1", "L2", "COMPUTED",
        "ANSWER", "FIRST", "TOKEN", "TOKENS/S",
    ]  # fmt: skip
    assert " ".join(lines[1].split()) == (
        "tiny not kept loading 0 s ago 1,000 0 not yet unknown"  # its counts are not known
    )
    assert " ".join(lines[4].split()) == (
        "tiny story stop 2 min ago 4,097 2,000 2,000 0 97 41 0.12 s 21"
    )
    assert lines[-2] == "2 answered: 4,129 prompt tokens = 4,016 cached + 113 computed"
    assert lines[-1] == "story: it broke"


def test_names_that_were_refused_are_cut(
    gliad: FakeGliad, runs: list[RunValue], capfd: Any
) -> None:
    runs[:] = [
        structs.replace(runs[1], conversation="c" * 64, error=None),
        structs.replace(runs[1], model="m" * 256, conversation="n\x1b[2J\n" * 30),
    ]
    said = say(capfd, "ps").out
    assert "\x1b" not in said
    good, cut = (line.split() for line in said.splitlines()[1:3])
    assert good[:2] == ["tiny", "c" * 64]
    assert cut[0] == "m" * 63 + "…"
    assert (len(cut[1]), cut[1][:8]) == (64, r"n\x1b[2J")
    assert said.splitlines()[-1].endswith("…: it broke")
    assert len(say(capfd, "ps", "--json").json[1]["model"]) == 256


def test_ps_names_classes_where_one_is_canonical(
    gliad: FakeGliad, runs: list[RunValue], capfd: Any
) -> None:
    runs[:] = [
        structs.replace(runs[0], numerics_class="canonical"),
        structs.replace(runs[1], numerics_class="native:tile128,torch"),
    ]
    lines = [line.split() for line in say(capfd, "ps").out.splitlines()]
    assert [line[1] for line in lines[:3]] == ["CLASS", "canonical", "native"]


def test_ps_json(gliad: FakeGliad, runs: list[RunValue], capfd: Any) -> None:
    found = say(capfd, "ps", "--json").json
    assert [run["number"] for run in found] == [4, 3, 2, 1]
    assert found[3]["cached"] == {"l0": 2000, "l1": 2000, "l2": 0, "peers": 0}


def test_ps_of_nothing(gliad: FakeGliad, capfd: Any) -> None:
    assert len(say(capfd, "ps").out.splitlines()) == 1


def test_ps_watches_until_it_is_interrupted(
    gliad: FakeGliad, runs: list[RunValue], capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) % 3 == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr("daemon.verbs.watching.time.sleep", wait)
    said = say(capfd, "ps", "--watch", "--json")
    assert (said.code, said.err) == (0, "")
    assert [len(json.loads(line)) for line in said.out.splitlines()] == [4, 4, 4]
    assert say(capfd, "ps", "--watch").out.count("CONVERSATION") == 3
    assert waits == [1.0] * 6
