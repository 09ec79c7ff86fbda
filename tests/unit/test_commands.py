"""Commands in what the verbs say name the data dir that the verb was given."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import _parser
from daemon.commands import VERBS, addressed
from daemon.show import _HINTS
from glia.errors import UnknownModel
from tests.cli_parts import TIP, World, say
from tests.fake_conversations import Kept
from tests.fake_gliad import FakeGliad


@pytest.fixture
def elsewhere(gliad: FakeGliad, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The option that names where gliad is; nothing else does."""
    monkeypatch.setenv("GLIA_DATA_DIR", str(tmp_path / "other"))
    return f"--data-dir {tmp_path}"


def test_all_verbs_are_known() -> None:
    (verbs,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert set(VERBS) == set(verbs.choices) - {"completion", "version"}  # they ask no node


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gliad start", "gliad start D"),
        ("gliad stop, then gliad start", "gliad stop D, then gliad start D"),
        ("gliad export A --json has ids", "gliad export D A --json has ids"),
        ("gliad start --data-dir /a", "gliad start --data-dir /a"),
        ("gliad run --help", "gliad run --help"),
        ("gliad models add A B", "gliad models add D A B"),
        ("gliad models add --help", "gliad models add --help"),
        ("gliad --help", "gliad --help"),
        ("gliad runs; gliad models shows", "gliad runs; gliad models D shows"),
        ("this gliad", "this gliad"),
    ],
)
def test_each_command_is_addressed(text: str, told: str) -> None:
    path = Path("/a b/\\1")
    assert addressed(text, path) == told.replace(" D", f" --data-dir {shlex.quote(str(path))}")


def test_the_default_place_need_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIA_DATA_DIR", str(tmp_path))
    assert addressed("gliad stop", tmp_path) == "gliad stop"


@pytest.mark.parametrize("hint", ["gliad conversations", None])
def test_hints_of_errors(hint: str | None, elsewhere: str, world: World, capfd: Any) -> None:
    world.raises = UnknownModel("it broke", hint=hint)
    said = say(capfd, "models", *elsewhere.split())
    first, verb, rest = (hint or _HINTS[UnknownModel.__mro__[1]]).partition(" ")
    assert first == "gliad"
    assert elsewhere in said.hint
    assert said.hint.replace(f" {elsewhere}", "") == f"hint: {first}{verb}{rest}"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("fork story other", "go on: gliad run WHERE tiny TEXT --raw --conversation other"),
        ("recall story", "the log has their text: gliad export WHERE story"),
        ("recall story --search zzz", "gliad export WHERE has what is in none"),
        ("conversations", "5 more anonymous ones: gliad conversations WHERE --all"),
        ("forget", "hint: gliad conversations WHERE lists their names"),
        ("chat tiny --conversation story", "hint: gliad run WHERE tiny TEXT --raw"),
        ("doctor", "gliad's settings: gliad config WHERE shows both"),
        ("config", "gliad stop WHERE, then gliad start WHERE"),
    ],
)
def test_what_verbs_say(words: str, told: str, elsewhere: str, world: World, capfd: Any) -> None:
    world.tip, world.settings["l1.size"] = None, '"7MiB"'
    world.conversations.kept["story"] = Kept(list(range(40)), [], 1.0, tip=TIP)
    for number in range(25):
        world.conversations.kept[f"@{number:08x}"] = Kept([1], [], time.time())
    assert told.replace("WHERE", elsewhere) in say(capfd, *words.split(), *elsewhere.split()).err
