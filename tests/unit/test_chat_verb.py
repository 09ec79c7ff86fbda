"""gliad chat, without a terminal, against a gliad that says what it is told to."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.verbs import chat
from glia.errors import EngineFailed, UnknownConversation
from glia.local import messages as m
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import ANSWER, Said, World, say, sent
from tests.fake_gliad import FakeGliad

TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}:{{ m.content }}<eos>{% endfor %}<bos>assistant:"
)
Type = Callable[..., Said]


@pytest.fixture
def talk(
    gliad: FakeGliad, world: World, capfd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Type:
    """Chat these lines."""
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATE)
    world.model = type(world.model)(
        **{f: getattr(world.model, f) for f in world.model.__struct_fields__}
        | {"context_tokens": 2048}
    )

    def type_(text: str, *words: str) -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return say(capfd, "chat", "tiny", *words)

    return type_


@pytest.fixture
def read(tmp_path: Path) -> Callable[[m.Generate], str]:
    tokenizer = Tokenizer.load(tmp_path / "model")
    return lambda call: tokenizer.decode(call.tokens, skip_special=False)


def test_each_line_is_a_message_and_each_answer_goes_to_stdout(
    talk: Type, gliad: FakeGliad, world: World, read: Callable[[m.Generate], str]
) -> None:
    world.timings_ms = {"decode": 100.0}
    said = talk("Hi\n\n/help\n")
    assert (said.code, said.out) == (0, f"{ANSWER}\n{ANSWER}\n")
    first, second = (call for call in gliad.calls if isinstance(call, m.Generate))
    assert read(first) == "<bos>user:Hi<eos><bos>assistant:"
    assert read(second) == (
        f"<bos>user:Hi<eos><bos>assistant:{ANSWER}<eos><bos>user:/help<eos><bos>assistant:"
    )
    assert second.turn.keep == len(first.tokens) + len(world.tokens)
    assert second.turn.conversation == "@00000001"
    assert said.err.splitlines()[0] == (
        f"16 of {len(first.tokens)} prompt tokens cached (l0), first token 0.11 s, 130 tokens/s"
    )
    assert said.err.splitlines()[-2:] == [
        "go on: gliad chat tiny --conversation @00000001",
        "keep it under a name: gliad fork @00000001 NAME",
    ]


def test_a_conversation_is_made_and_gone_on_with(
    talk: Type, gliad: FakeGliad, read: Callable[[m.Generate], str]
) -> None:
    assert talk("Hi\n", "--conversation", "story").code == 0
    assert sent(gliad, m.Generate).turn.create is True
    assert talk("More\n", "--conversation", "story").code == 0
    call = sent(gliad, m.Generate)
    assert (call.turn.conversation, call.turn.create) == ("story", False)
    assert read(call).startswith(f"<bos>user:Hi<eos><bos>assistant:{ANSWER}<eos><bos>user:More")


def test_json_is_a_line_for_each_answer(talk: Type, world: World) -> None:
    said = talk("a\nb\n", "--json", "--conversation", "story")
    assert said.err == ""
    first, second = map(json.loads, said.out.splitlines())
    assert (first["text"], first["conversation"], second["conversation"]) == (
        ANSWER, "story", "story",
    )  # fmt: skip
    assert second["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"]


def test_what_is_kept_nowhere_goes_on_all_the_same(
    talk: Type, gliad: FakeGliad, world: World
) -> None:
    world.conversations.is_kept = False
    said = talk("a\nb\n")
    assert said.code == 0
    turn = sent(gliad, m.Generate).turn
    assert (turn.keep, turn.conversation) == (0, "")
    assert [said.role for said in turn.messages] == ["user", "assistant", "user"]
    assert "go on" not in said.err


def test_what_could_not_be_recorded_was_not_said(
    talk: Type, gliad: FakeGliad, world: World, read: Callable[[m.Generate], str]
) -> None:
    world.conversations.is_kept = False
    world.warning = "the conversation was not recorded: the store is full"
    said = talk("a\nb\n", "--conversation", "story")
    assert said.err.count("warning: the conversation was not recorded") == 2
    call = sent(gliad, m.Generate)
    assert read(call) == "<bos>user:b<eos><bos>assistant:"
    assert (call.turn.keep, call.turn.create) == (0, True)


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_talk_goes_on_after_an_error(
    talk: Type, gliad: FakeGliad, world: World, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def type_(*lines: str) -> Said:
        typed = iter(lines)
        monkeypatch.setattr(chat, "read_message", lambda: next(typed, None))
        monkeypatch.setattr(sys, "stdin", Typed())
        return say(capfd, "chat", "tiny", "--seed", "5", "--conversation", "story")

    said = type_("/again", "a", " /b", "/c", "", "/again", "/again", "/exit", "d")
    assert said.code == 0
    assert said.err.count("error: ") == 2
    assert "error: there is no /c\nhint: /help shows what there is" in said.err
    calls = [call for call in gliad.calls if isinstance(call, m.Generate)]
    assert [call.sampling.seed for call in calls] == [5, 5, 6, 7]
    assert calls[1].tokens == calls[2].tokens == calls[3].tokens
    assert [len(call.turn.messages) for call in calls] == [1, 1, 0, 0]


def test_a_talk_that_somebody_else_went_on_with_is_read_again(
    talk: Type,
    gliad: FakeGliad,
    world: World,
    read: Callable[[m.Generate], str],
    capfd: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lines() -> Iterator[str]:
        yield "a"
        world.conversations.kept["story"].tokens[-1:] = []
        world.conversations.kept["story"].messages[-1:] = []
        yield "b"
        yield "c"

    typed = lines()
    monkeypatch.setattr(chat, "read_message", lambda: next(typed, None))
    monkeypatch.setattr(sys, "stdin", Typed())
    said = say(capfd, "chat", "tiny", "--conversation", "story")
    assert (said.code, said.err.count("error: not the log's")) == (0, 1)
    assert "<bos>user:c<eos>" in read(sent(gliad, m.Generate))


def test_a_system_message_begins_a_conversation(
    talk: Type, gliad: FakeGliad, read: Callable[[m.Generate], str], tmp_path: Path
) -> None:
    file = tmp_path / "s.txt"
    file.write_text("Be brief.")
    words = ("--system", str(file), "--conversation", "story")
    assert talk("a\nb\n", *words).code == 0
    call = sent(gliad, m.Generate)
    assert read(call).startswith("<bos>system:Be brief.<eos><bos>user:a<eos>")
    assert read(call).count("system") == 1
    assert talk("c\n", *words).code == 0  # the same one again is nothing new
    assert read(sent(gliad, m.Generate)).count("system") == 1
    num_calls = len(gliad.calls)
    file.write_text("Be long.")
    said = talk("d\n", *words)
    assert (said.code, said.out) == (2, "")
    assert said.hint == "hint: leave out --system, or give another --conversation"
    assert not [call for call in gliad.calls[num_calls:] if isinstance(call, m.Generate)]


@pytest.mark.parametrize("name", ["@1234abcd", ""])
def test_a_name_that_only_gliad_gives_is_not_made_up_by_us(talk: Type, name: str) -> None:
    said = talk("a\n", "--conversation", name)
    assert (said.code, said.hint) == (UnknownConversation.exit_code, "hint: gliad conversations")


def test_another_models_conversation_is_named(talk: Type, world: World) -> None:
    talk("a\n", "--conversation", "story")
    world.conversations.kept["story"].model = "other"
    world.model = type(world.model)(
        **{f: getattr(world.model, f) for f in world.model.__struct_fields__}
        | {"model_id": "ab" * 32}
    )
    said = talk("b\n", "--conversation", "story")
    assert (said.code, said.hint) == (2, "hint: gliad chat other --conversation story")


def test_an_error_ends_what_is_no_terminal(
    talk: Type, gliad: FakeGliad, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_call: m.Generate) -> m.Generated:
        raise EngineFailed("it broke", hint="try again")

    monkeypatch.setattr(world, "generated", fail)
    said = talk("a\nb\n")
    assert (said.code, said.hint) == (EngineFailed.exit_code, "hint: try again")
    assert len([call for call in gliad.calls if isinstance(call, m.Generate)]) == 1


def test_text_without_a_template_is_not_chatted_with(talk: Type, capfd: Any) -> None:
    assert say(capfd, "run", "tiny", "a", "--raw", "--conversation", "raw").code == 0
    said = talk("", "--conversation", "raw")
    assert (said.code, said.out) == (2, "")
    assert "--raw --conversation NAME" in said.hint


def test_a_conversation_that_is_too_long_says_what_to_do(talk: Type, gliad: FakeGliad) -> None:
    said = talk("a\n" + "x" * 2048 + "\n", "--conversation", "story")
    assert said.code == 2
    assert "tiny takes 2,047 at most" in said.err
    assert "gliad fork story@TOKEN NEW" in said.hint
    assert talk("y" * 2048).hint == "hint: shorten the prompt"


def test_a_line_that_is_not_text_is_told(
    talk: Type, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff\n")))
    said = say(capfd, "chat", "tiny")
    assert said.code == 2
    assert "is not UTF-8" in said.err


def test_options_reach_gliad(talk: Type, gliad: FakeGliad) -> None:
    words = "--max-tokens 5 --temperature 0.5 --top-p 0.9 --top-k 7 --seed 11 --stop Or"
    assert talk("a\n", *words.split()).out == "Paris. \n"
    call = sent(gliad, m.Generate)
    assert (call.max_tokens, call.sampling.seed, call.stop) == (5, 11, ["Or"])
    assert talk("a\n", "--top-p", "0").hint == "hint: gliad chat --help"


def test_a_model_without_a_template_cannot_chat(gliad: FakeGliad, capfd: Any) -> None:
    said = say(capfd, "chat", "tiny")
    assert (said.code, said.hint) == (
        2,
        "hint: gliad run tiny TEXT --raw continues a text as it is",
    )
