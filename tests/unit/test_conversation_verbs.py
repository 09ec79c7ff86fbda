"""conversations, fork, export, forget against a gliad that says what it is told to."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import pytest

from daemon.verbs.conversations import split_position
from glia.errors import BadRequest, ConversationBusy, UnknownConversation
from glia.local import messages as m
from glia.local.values import MessageValue
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import MODEL_ID, World, say, sent
from tests.fake_conversations import Kept
from tests.fake_gliad import FakeGliad

SAID = (("system", "Be brief."), ("user", "Where is the é?"), ("assistant", "Here."))


@pytest.fixture
def story(world: World) -> Kept:
    """A conversation of three messages; the answer's text is what its tokens say."""
    tokenizer = Tokenizer.load(world.model.source)
    kept = Kept(used_s=time.time() - 3 * 3600)
    for role, text in SAID:
        kept.tokens += tokenizer.encode(f"<bos>{role}:")
        start = len(kept.tokens)
        kept.tokens += tokenizer.encode(text)
        content = None if role == "assistant" else text
        kept.messages.append(MessageValue(role, content, start, len(kept.tokens)))
        kept.tokens += tokenizer.encode("<eos>")
    world.conversations.kept["story"] = kept
    return kept


def keep_anonymous(world: World, number: int) -> None:
    for n in range(number):
        world.conversations.kept[f"@{n:08x}"] = Kept([1, 2], [], time.time() - n)


def test_conversations_are_listed(gliad: FakeGliad, world: World, story: Kept, capfd: Any) -> None:
    keep_anonymous(world, 25)
    said = say(capfd, "conversations")
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["NAME", "MODEL", "MESSAGES", "TOKENS", "LABEL", "USED", "EXPIRES"]
    assert len(rows) == 1 + 20 + 1
    assert rows[-1] == ["story", "tiny", "3", str(len(story.tokens)), "private",
                        "3", "h", "ago", "never"]  # fmt: skip
    assert rows[1][0] == "@00000000"
    assert rows[1][-3:] == ["in", "59", "min"]
    assert said.err == "5 more anonymous ones: gliad conversations --all\n"
    assert len(say(capfd, "conversations", "--all").out.splitlines()) == 1 + 25 + 1
    found = say(capfd, "conversations", "--json").json
    assert (len(found), found[-1]["name"], found[-1]["model_id"]) == (26, "story", MODEL_ID.hex())


def test_a_fork_begins_with_anothers_tokens(gliad: FakeGliad, story: Kept, capfd: Any) -> None:
    said = say(capfd, "fork", "story@7", "other")
    assert (said.code, said.out) == (0, "")
    assert said.err == (
        "other begins with the first 7 tokens of story; "
        "go on: gliad run tiny TEXT --raw --conversation other\n"  # the first message is longer
    )
    call = sent(gliad, m.Fork)
    assert (call.name, call.new, call.num_tokens) == ("story", "other", 7)
    assert say(capfd, "fork", "story", "all", "--json").json["num_tokens"] == len(story.tokens)
    assert sent(gliad, m.Fork).num_tokens is None
    end = story.messages[1].end
    for size in (0, end):
        said = say(capfd, "fork", f"story@{size}", f"of-{size}")
        assert said.err.endswith(f"; go on: gliad chat tiny --conversation of-{size}\n")


def test_a_fork_of_text_without_a_template_goes_on_without_one(
    gliad: FakeGliad, world: World, capfd: Any
) -> None:
    assert say(capfd, "run", "tiny", "The city is", "--raw", "--conversation", "raw").code == 0
    said = say(capfd, "fork", "raw", "other")
    assert said.err.endswith("go on: gliad run tiny TEXT --raw --conversation other\n")
    assert say(capfd, "run", "tiny", "TEXT", "--raw", "--conversation", "other").code == 0
    assert say(capfd, "chat", "tiny", "--conversation", "other").code == 2


def test_a_name_and_a_token_are_told_apart() -> None:
    assert split_position("@1234abcd") == ("@1234abcd", None)
    assert split_position("@1234abcd@16") == ("@1234abcd", 16)
    assert split_position("a.b-c") == ("a.b-c", None)
    for text in ("a@", "a@b", "a@-1", "a@1.5", "a@" + "9" * 99, "a@²"):
        with pytest.raises(BadRequest):
            split_position(text)


def test_export_says_who_said_what(gliad: FakeGliad, story: Kept, capfd: Any) -> None:
    assert say(capfd, "export", "story").out == (
        "system:\nBe brief.\n\nuser:\nWhere is the é?\n\nassistant:\nHere.\n"
    )
    assert say(capfd, "export", "story", "--raw").out == (
        "<bos>system:Be brief.<eos><bos>user:Where is the é?<eos><bos>assistant:Here.<eos>\n"
    )
    found = say(capfd, "export", "story", "--json").json
    assert [(said["role"], said["content"]) for said in found["messages"]] == list(SAID)
    assert found["tokens"] == story.tokens
    first = story.messages[0]
    assert (found["messages"][0]["start"], found["messages"][0]["end"]) == (first.start, first.end)
    assert found["model"] == "tiny"


def test_export_of_text_without_a_template(gliad: FakeGliad, world: World, capfd: Any) -> None:
    assert say(capfd, "run", "tiny", "The city is", "--raw", "--conversation", "raw").code == 0
    assert say(capfd, "export", "raw").out == "The city isParis. Or é?\n"
    assert say(capfd, "run", "tiny", " Yes", "--raw", "--conversation", "raw").code == 0
    assert say(capfd, "export", "raw", "--raw").out == (
        "<bos>The city isParis. Or é? YesParis. Or é?<eos>\n"
    )


def test_export_without_the_model(gliad: FakeGliad, world: World, story: Kept, capfd: Any) -> None:
    world.model = type(world.model)(
        **{f: getattr(world.model, f) for f in world.model.__struct_fields__}
        | {"model_id": "ab" * 32}
    )
    said = say(capfd, "export", "story")
    assert (said.code, said.out) == (2, "")
    assert said.hint == "hint: gliad export story --json has the token ids"
    contents = [
        said["content"] for said in say(capfd, "export", "story", "--json").json["messages"]
    ]
    assert contents == ["Be brief.", "Where is the é?", None]


# -- forget ------------------------------------------------------------------------------------


def test_forget_says_what_became_free(gliad: FakeGliad, story: Kept, capfd: Any) -> None:
    said = say(capfd, "forget", "story", "--yes")
    assert (said.code, said.err) == (0, "")
    assert said.out == "story: 5.0 MiB in 7 windows removed; 3 windows stay, others use them\n"
    said = say(capfd, "forget", "story", "--yes")
    assert said.code == UnknownConversation.exit_code
    assert say(capfd, "forget", "--anonymous").err == "there is nothing to forget\n"


def test_forget_says_what_stays_as_it_is_published(
    gliad: FakeGliad, world: World, story: Kept, capfd: Any
) -> None:
    world.conversations.num_published = 2
    said = say(capfd, "forget", "story", "--yes")
    assert said.out.endswith("; 2 windows stay, they are published for good\n")
    assert not any(isinstance(call, m.Withdraw) for call in gliad.calls)


def test_forget_can_withdraw_first(gliad: FakeGliad, story: Kept, capfd: Any) -> None:
    assert say(capfd, "forget", "story", "--withdraw", "--yes").code == 0
    asked = [call for call in gliad.calls if isinstance(call, (m.Withdraw, m.Forget))]
    assert [type(call) for call in asked] == [m.Withdraw, m.Forget]


def test_forget_takes_all_names_or_none(
    gliad: FakeGliad, world: World, story: Kept, capfd: Any
) -> None:
    keep_anonymous(world, 4)
    said = say(capfd, "forget", "story", "nobody", "--anonymous", "--yes", "--json")
    assert (said.code, said.out) == (2, "")
    assert "'nobody'; nothing was forgotten" in said.err
    assert len(world.conversations.kept) == 5
    found = say(capfd, "forget", "@00000001", "--anonymous", "--yes", "--json").json
    assert [row["name"] for row in found] == [f"@{n:08x}" for n in range(4)]
    assert found[0] == {
        "name": "@00000000", "num_windows": 7, "freed_bytes": 5 * 2**20, "num_shared": 3,
        "num_published": 0, "was_damaged": False,
    }  # fmt: skip
    assert list(world.conversations.kept) == ["story"]
    assert say(capfd, "forget").hint == "hint: gliad conversations lists their names"


def test_forget_takes_what_was_set_aside(
    gliad: FakeGliad, world: World, story: Kept, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.conversations.aside.add("torn")
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    said = say(capfd, "forget", "torn", "story")
    assert said.err.startswith("story: 3 messages")
    assert "\ntorn: torn could not be read and was set aside\nforget for" in said.err
    said = say(capfd, "forget", "torn", "--yes")
    assert said.out.startswith("torn: 0 B in 0 windows")
    assert "windows of it may be left: gliad gc --unreferenced\n" in said.err
    assert not world.conversations.aside


def test_forget_says_that_a_first_answer_is_running(
    gliad: FakeGliad, world: World, story: Kept, capfd: Any
) -> None:
    world.conversations.begun.add("new")
    said = say(capfd, "forget", "story", "new", "--yes")
    assert (said.code, said.out) == (ConversationBusy.exit_code, "")
    assert "new is being answered in" in said.err
    assert said.hint == "hint: gliad ps"
    assert "story" in world.conversations.kept


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_forget_asks_where_somebody_is(
    gliad: FakeGliad, world: World, story: Kept, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert say(capfd, "forget", "story").hint == "hint: add --yes"
    for answer in ("\n", "n\n", ""):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        said = say(capfd, "forget", "story")
        assert said.code == 0
        assert said.err.startswith(f"story: 3 messages, {len(story.tokens)} tokens\nforget for")
        assert said.hint.endswith("nothing was forgotten")
    assert "story" in world.conversations.kept
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    assert say(capfd, "forget", "story").code == 0
    assert "story" not in world.conversations.kept


@pytest.mark.parametrize("num_chars", [257, 300, 100_000])
@pytest.mark.parametrize(
    "words", ["export N", "recall N", "forget N --yes", "fork story N", "fork N new",
              "run tiny Hi --conversation N", "chat tiny --conversation N", "publish N"],
)  # fmt: skip
def test_a_name_that_no_message_carries_is_none(
    gliad: FakeGliad, capfd: Any, words: str, num_chars: int
) -> None:
    name = "x" * num_chars
    said = say(capfd, *words.replace("N", name).split())
    assert (said.code, said.out) == (2, "")
    assert f"no conversation can be called 'xxxx{'x' * 76}', in {num_chars:,}" in said.err
    assert len(said.err) < 1000
