"""gliad recall against a gliad that says what it is told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from glia.errors import IntegrityError, NotRunning
from glia.local import messages as m
from glia.model.remembered import Remembered
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import TIP, World, say, sent, window
from tests.fake_conversations import Kept
from tests.fake_gliad import FakeGliad

TEXT = "<bos>The number on its back says where a book stands. É, so it is, and so it was then.<eos>"
NOWHERE = "no stored window has it; gliad export has what is in none"


@pytest.fixture
def tokens(world: World) -> list[int]:
    """A conversation of a whole number of windows and five tokens more."""
    tokens = Tokenizer.load(world.model.source).encode(TEXT)
    world.windows = [window(tokens[at : at + 16], at // 16) for at in range(0, 80, 16)]
    world.conversations.kept["story"] = Kept(tokens, [], 1.0, tip=TIP)
    assert 80 < len(tokens) < 96
    return tokens


def text_of(world: World, tokens: list[int]) -> str:
    return Tokenizer.load(world.model.source).decode(tokens, skip_special=False)


def token_of(world: World, before: str) -> int:
    """The token behind the first `before` of the text."""
    end = TEXT.index(before) + len(before)
    return len(Tokenizer.load(world.model.source).encode(TEXT[:end]))


def test_a_past_is_read_back_from_its_windows(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any
) -> None:
    said = say(capfd, "recall", "story")
    left = len(tokens) - 80
    assert said.out == text_of(world, tokens[:80]) + "\n"
    assert said.err == f"the last {left} tokens are no whole window yet: gliad export has them\n"
    found = say(capfd, "recall", "story", "--from", "1", "--to", "11", "--json").json
    assert (found["text"], found["tokens"]) == ("The number", tokens[1:11])
    assert (found["num_recalled"], found["num_tokens"]) == (80, len(tokens))
    assert found["windows"] == [bytes([n]).hex() * 32 for n in range(5)]


def test_a_text_is_found_across_windows_in_whatever_case(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any
) -> None:
    found = say(capfd, "recall", "story", "--search", "NUMBER ON ITS BACK", "--json").json
    (hit,) = found["hits"]  # it begins in the first window and ends in the second
    assert (hit["token"], hit["before"], hit["match"]) == (5, "<bos>The ", "number on its back")
    assert hit["after"] == TEXT.split("back")[1][:40]
    (hit,) = say(capfd, "recall", "story", "--search", "é, SO", "--json").json["hits"]
    assert (hit["token"], hit["match"]) == (token_of(world, "stands. É") - 1, "É, so")
    first, second = token_of(world, "É, "), token_of(world, "and ")
    rows = say(capfd, "recall", "story", "--search", "so it").out.splitlines()
    assert [row.split()[0] for row in rows] == ["TOKEN", str(first), str(second)]
    words = ("recall", "story", "--search", "so it", "--from", str(first + 1), "--json")
    assert [hit["token"] for hit in say(capfd, *words).json["hits"]] == [second]
    said = say(capfd, "recall", "story", "--search", ".*")
    assert (said.out, said.hint) == ("", NOWHERE)


def test_what_is_in_no_window_is_not_said_to_stand_nowhere(
    gliad: FakeGliad, tokens: list[int], capfd: Any
) -> None:
    assert "then." in say(capfd, "export", "story").out  # of tokens behind the last window
    said = say(capfd, "recall", "--all", "--search", "then.")
    assert (said.out, said.hint) == ("", NOWHERE)


def test_what_is_not_stored_any_more_is_said(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any
) -> None:
    world.tip, world.windows = None, world.windows[:2]
    said = say(capfd, "recall", "story")
    assert said.out == text_of(world, tokens[:32]) + "\n"
    assert said.err == (
        f"the last {len(tokens) - 32} of {len(tokens)} tokens are not stored any more; "
        "the log has their text: gliad export story\n"
    )
    assert sent(gliad, m.Explain).tokens == tokens
    world.windows = []
    said = say(capfd, "recall", "story", "--json")
    assert (said.json["text"], said.json["num_recalled"]) == ("", 0)


def test_all_conversations_are_searched(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any
) -> None:
    world.conversations.kept["@00000001"] = Kept(tokens, [], 2.0, tip=TIP)
    first, second = token_of(world, "É, "), token_of(world, "and ")
    found = say(capfd, "recall", "--all", "--search", "so it", "--json").json
    assert [(hit["name"], hit["token"]) for hit in found] == [
        (name, at) for name in ("@00000001", "story") for at in (first, second)
    ]
    rows = say(capfd, "recall", "--all", "--search", "BOOK").out.splitlines()
    assert [row.split()[0] for row in rows] == ["NAME", "@00000001", "story"]


def test_a_tokenizer_is_loaded_once_for_all_conversations(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        world.conversations.kept[f"@0000000{number}"] = Kept(tokens, [], 2.0, tip=TIP)
    loaded, load = [], Tokenizer.load

    def counted(path: Path) -> Tokenizer:
        loaded.append(path)
        return load(path)

    monkeypatch.setattr(Tokenizer, "load", counted)
    assert len(say(capfd, "recall", "--all", "--search", "BOOK", "--json").json) == 6
    assert len(loaded) == 1


def test_windows_that_say_something_else_are_no_past(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any
) -> None:
    world.conversations.kept["story"].tokens = [1, *tokens[1:]]
    said = say(capfd, "recall", "story")
    assert (said.code, said.out, said.hint) == (4, "", "hint: gliad check")


def test_all_others_are_searched_where_one_fails(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any
) -> None:
    kept = world.conversations.kept
    kept["altered"] = Kept([1, *tokens[1:]], [], 3.0, tip=TIP)
    kept["@00000001"] = Kept(tokens, [], 2.0, tip=TIP)
    found = say(capfd, "recall", "--all", "--search", "so it", "--json")
    assert [hit["name"] for hit in found.json] == ["@00000001"] * 2 + ["story"] * 2
    assert found.code == IntegrityError.exit_code
    said = "altered is left out: the windows of altered have other tokens than its log\n"
    assert found.err == said
    rows = say(capfd, "recall", "--all", "--search", "BOOK").out.splitlines()
    assert [row.split()[0] for row in rows] == ["NAME", "@00000001", "story"]


def test_what_is_forgotten_meanwhile_is_no_failure(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = world.conversations.part

    def forget_then_part(call: m.ReadConversation) -> m.ConversationReply:
        world.conversations.kept.pop("gone", None)
        return part(call)

    world.conversations.kept["gone"] = Kept(tokens, [], 3.0, tip=TIP)
    monkeypatch.setattr(world.conversations, "part", forget_then_part)
    said = say(capfd, "recall", "--all", "--search", "BOOK")
    assert (said.code, said.err) == (0, "")
    assert [row.split()[0] for row in said.out.splitlines()] == ["NAME", "story"]


def test_a_search_ends_where_gliad_does(
    gliad: FakeGliad, tokens: list[int], world: World, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(call: m.Call) -> m.ConversationReply:
        raise NotRunning("gliad ends", hint="gliad start")

    monkeypatch.setattr(world.conversations, "part", end)
    said = say(capfd, "recall", "--all", "--search", "BOOK")
    assert (said.code, said.out) == (NotRunning.exit_code, "")
    assert said.err == "error: gliad ends\nhint: gliad start\n"


@pytest.mark.parametrize(
    "words",
    [
        "",
        "story --all",
        "--all",
        "story --from -1",
        "story --from 9 --to 8",
    ],
)
def test_a_question_that_makes_no_sense(
    words: str, gliad: FakeGliad, tokens: list[int], capfd: Any
) -> None:
    said = say(capfd, "recall", *words.split())
    assert (said.code, said.out) == (2, "")


def test_a_character_of_two_tokens_is_found_where_it_ends(world: World) -> None:
    tokenizer = Tokenizer.load(world.model.source)
    remembered = Remembered(tokenizer, tokenizer.encode("aéb"), 100)
    assert [(hit.token, hit.before, hit.after) for hit in remembered.find("É")] == [(102, "a", "b")]
    assert [hit.token for hit in remembered.find("B")] == [103]
