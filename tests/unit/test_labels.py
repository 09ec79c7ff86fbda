"""--public, --private, --system-visibility: how what is said is labelled."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.verbs.dialogue import Dialogue
from daemon.verbs.labels import add_labels, tell_stays_private
from glia.graph.privacy import tightened_words
from glia.local import messages as m
from glia.local import values
from tests.cli_parts import Said, World, say, sent
from tests.fake_gliad import FakeGliad

TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}:{{ m.content }}<eos>{% endfor %}<bos>assistant:"
)
Say = Callable[..., Said]


@pytest.fixture
def run(gliad: FakeGliad, world: World, capfd: Any, tmp_path: Path) -> Say:
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATE)
    world.model = type(world.model)(
        **{f: getattr(world.model, f) for f in world.model.__struct_fields__}
        | {"context_tokens": 2048}
    )
    return lambda *words: say(capfd, *words)


@pytest.fixture
def chat(run: Say, monkeypatch: pytest.MonkeyPatch) -> Say:
    def type_(text: str, *words: str) -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return run("chat", "tiny", *words)

    return type_


def labels(gliad: FakeGliad) -> list[tuple[str, str]]:
    return [(said.role, said.visibility) for said in sent(gliad, m.Generate).turn.messages]


def test_what_is_said_is_private_unless_it_is_said_to_be_public(run: Say, gliad: FakeGliad) -> None:
    for words, label in (((), "private"), (("--private",), "private"), (("--public",), "public")):
        assert run("run", "tiny", "Hi", "--system", "Be kind", *words).code == 0
        assert labels(gliad) == [("system", label), ("user", label)]
        assert run("run", "tiny", "Hi", "--raw", *words).code == 0
        assert labels(gliad) == [("", label)]
    with pytest.raises(SystemExit):
        run("run", "tiny", "Hi", "--raw", "--public", "--private")


def test_what_nobody_labels_is_as_the_settings_have_it(
    run: Say, chat: Say, world: World, gliad: FakeGliad
) -> None:
    world.settings["conversations.visibility"] = '"public"'
    system = ("--system", "Be kind")
    for words, told in (
        ((), ["public", "public"]),
        (("--private",), ["private", "private"]),
        (("--system-visibility", "private"), ["private", "public"]),  # gliad tightens it
        (("--private", "--system-visibility", "public"), ["public", "private"]),
    ):
        assert run("run", "tiny", "Hi", *system, *words).code == 0
        assert [label for _, label in labels(gliad)] == told
    assert chat("Hi\n", "--conversation", "story").code == 0
    assert labels(gliad) == [("user", "public")]


def test_tokens_are_labelled_too(run: Say, gliad: FakeGliad, tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text(json.dumps([1, 2, 3]))
    assert run("run", "tiny", "--token-ids", str(tmp_path / "ids.json"), "--public").code == 0
    assert labels(gliad) == [("", "public")]


def test_what_is_said_for_a_group_is_labelled_so(run: Say, chat: Say, gliad: FakeGliad) -> None:
    system = ("--system", "Be kind")
    for words, told in (
        (("--group", "team"), ["group:team", "group:team"]),
        (("--group", "team", "--system-visibility", "public"), ["public", "group:team"]),
    ):
        assert run("run", "tiny", "Hi", *system, *words).code == 0
        assert [label for _, label in labels(gliad)] == told
    assert chat("Hi\n", "--group", "team", "--conversation", "story").code == 0
    assert labels(gliad) == [("user", "group:team")]
    assert run("run", "tiny", "Hi", "--raw", "--group", "team", "--explain").code == 0
    assert [said.visibility for said in sent(gliad, m.Explain).turn.messages] == ["group:team"]
    for words in (("--group", "team", "--public"), ("--group", "")):
        with pytest.raises(SystemExit):
            run("run", "tiny", "Hi", *words)


def test_labels_as_they_are_written_only_get_stricter() -> None:
    words = ["public", "group:a", "public", "group:b", "aggregate", "private", "group:a", "public"]
    assert tightened_words(words) == [
        "public", "group:a", "group:a", "group:b", "aggregate", "private", "private", "private",
    ]  # fmt: skip
    assert tightened_words(["group:", "public"]) == ["private", "private"]  # is no label


def test_where_a_group_changes_nothing_that_is_said(
    chat: Say, world: World, gliad: FakeGliad
) -> None:
    for before, words, told in (
        ("private", ("--group", "team"), "private, so what follows is, too"),
        ("group:team", ("--group", "team"), ""),
        ("public", ("--group", "team"), ""),
        ("group:team", ("--public",), "of group:team, so what follows is, too"),
        ("group:team", ("--group", "club"), "for another group, what follows is private"),
        ("group:team", (), ""),
    ):
        dialogue = Dialogue(
            world.model, "a", messages=[values.MessageValue("", None, 0, 0, before)]
        )
        assert dialogue.label == before
        args = parse(words)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            tell_stays_private(args, dialogue)
        assert (told in said.getvalue()) if told else not said.getvalue()


def parse(words: tuple[str, ...]) -> argparse.Namespace:
    verb = argparse.ArgumentParser()
    add_labels(verb)
    return verb.parse_args(words)


def test_a_system_message_alone_can_be_public(run: Say, gliad: FakeGliad) -> None:
    words = ("--system", "Be kind", "--system-visibility", "public")
    assert run("run", "tiny", "Hi", *words).code == 0
    assert labels(gliad) == [("system", "public"), ("user", "private")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--system-visibility", "public"), "--system-visibility is for a system message"),
        (
            ("--system", "x", "--system-visibility", "private", "--public"),
            "what follows a private system message is private",
        ),
        (
            ("--system", "x", "--system-visibility", "private", "--group", "team"),
            "what follows a private system message is private",
        ),
    ],
)
def test_labels_that_cannot_be_are_refused(
    run: Say, chat: Say, gliad: FakeGliad, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "x").write_text("Be kind")
    in_chat = [str(tmp_path / "x") if word == "x" else word for word in words]
    for said in (run("run", "tiny", "Hi", *words), chat("Hi\n", *in_chat)):
        assert said.code == 2
        assert says in said.err
        assert said.hint.startswith("hint: ")
    assert not [call for call in gliad.calls if isinstance(call, m.Generate)]


def test_a_chat_has_a_public_system_message_and_private_turns(
    chat: Say, gliad: FakeGliad, tmp_path: Path
) -> None:
    system = tmp_path / "system"
    system.write_text("Be kind")
    words = ("--system", str(system), "--conversation", "story")
    assert chat("Hi\n", *words, "--system-visibility", "public").code == 0
    assert labels(gliad) == [("system", "public"), ("user", "private")]


def test_an_answer_to_what_is_public_is_public_and_so_is_what_follows(
    chat: Say, gliad: FakeGliad
) -> None:
    said = chat("Hi\nMore\n", "--public", "--conversation", "story")
    assert (said.code, "private" in said.err) == (0, False)
    assert labels(gliad) == [("user", "public")]


def test_a_dialogue_labels_an_answer_as_gliad_does(world: World) -> None:
    for label in ("public", "private"):
        dialogue = Dialogue(world.model, "story")
        prompt = dialogue.with_tokens([1, 2, 3], label)
        usage = values.UsageValue(3, 1, values.CachedValue(), 3)
        done = m.Generated(1, [4], "stop", None, usage, 1.0, {}, None, "story")
        dialogue.take(prompt, done)
        assert [said.visibility for said in dialogue.messages] == [label, label]
        dialogue.take(dialogue.with_tokens([5], "public"), done)
        assert [said.visibility for said in dialogue.messages] == [label] * 4
        assert dialogue.label == label


def test_public_changes_nothing_behind_what_is_private(
    run: Say, chat: Say, gliad: FakeGliad
) -> None:
    assert run("run", "tiny", "Hi", "--conversation", "story").code == 0
    note = "what was said before is private, so what follows is, too"
    assert note in chat("More\n", "--public", "--conversation", "story").err
    assert note in run("run", "tiny", "Hi", "--public", "--conversation", "story").err
    assert note not in run("run", "tiny", "Hi", "--conversation", "story").err
