"""gliad publish against a gliad that says what it is told to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from glia.errors import BadRequest, NetworkError, UnknownConversation
from glia.local import messages as m
from glia.local.values import MessageValue
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import World, say, sent
from tests.fake_conversations import Kept
from tests.fake_gliad import FakeGliad

ASKED = "The capital\nof France is"
ANSWERED = "Paris, as everyone knows who ever was there or has read a book about it."


@pytest.fixture
def story(world: World) -> Kept:
    tokenizer = Tokenizer.load(world.model.source)
    asked, answered = tokenizer.encode(ASKED), tokenizer.encode(ANSWERED)
    end = len(asked)
    kept = Kept(
        [*asked, *answered],
        [
            MessageValue("user", ASKED, 0, end, "public"),
            MessageValue("assistant", None, end, end + len(answered)),
        ],
        1.0,
    )
    world.conversations.kept["story"] = kept
    world.publish = m.PublishReply(0, 80, 16, 4, 3, 60.0)
    return kept


def test_it_lists_what_is_shown_of_each_message(gliad: FakeGliad, story: Kept, capfd: Any) -> None:
    said = say(capfd, "publish", "story", "--up-to", "80")
    assert said.code == 0, said.err
    assert (sent(gliad, m.Publish).num_tokens, sent(gliad, m.Publish).dry) == (80, False)
    head, user, answer = said.out.splitlines()
    assert head.split() == ["ROLE", "LABEL", "TOKENS", "SHOWN", "TEXT"]
    asked = len(ASKED)
    assert user.split()[:6] == ["user", "public", "0", "to", str(asked), str(asked)]
    assert user.endswith("The capital of France is")
    assert answer.split()[5] == str(64 - asked)
    assert answer.endswith("…")
    assert said.err == (
        "4 full windows, 3 of them not shown before; 1 more are not stored here any more. "
        "Others are told in 60 s: gliad publish story --withdraw takes it back\n"
    )


def test_what_is_a_groups_is_not_shown_and_the_reason_is_told(
    gliad: FakeGliad, world: World, story: Kept, capfd: Any
) -> None:
    world.publish = m.PublishReply(0, 0, 16, 0, 0, 60.0)
    assert "group" not in say(capfd, "publish", "story").err
    asked, answered = story.messages
    story.messages[:] = [structs.replace(asked, visibility="group:friends"), answered]
    assert "what is a group's, its members alone are shown" in say(capfd, "publish", "story").err


def test_a_dry_run_publishes_nothing_and_says_so(
    gliad: FakeGliad, world: World, story: Kept, capfd: Any
) -> None:
    said = say(capfd, "publish", "story", "--dry-run")
    assert (sent(gliad, m.Publish).num_tokens, sent(gliad, m.Publish).dry) == (None, True)
    assert said.err.endswith("Nothing was published: this is a dry run\n")
    found = say(capfd, "publish", "story", "--dry-run", "--json").json
    assert (found["dry_run"], found["num_windows"], found["num_new"]) == (True, 4, 3)
    assert [each["num_shown"] for each in found["messages"]] == [len(ASKED), 64 - len(ASKED)]
    assert found["messages"][1]["content"] == ANSWERED
    world.publish = m.PublishReply(0, 80, 4, 1, 4, None)
    said = say(capfd, "publish", "story")
    assert said.err.endswith(". Only who asks is told: gliad publish story --withdraw ends that\n")
    world.publish = m.PublishReply(0, 80, 0, 0, 0, 60.0)
    said = say(capfd, "publish", "story")
    assert said.err == "0 full windows, 0 of them not shown before\n"


def test_it_is_shown_no_longer(gliad: FakeGliad, world: World, story: Kept, capfd: Any) -> None:
    said = say(capfd, "publish", "story", "--withdraw")
    assert (said.code, said.out) == (0, "")
    assert sent(gliad, m.Withdraw).name == "story"
    assert said.err == (
        "story is private: 4 windows are shown no longer; 2 stay, others that are shown continue "
        "them. What peers took by now stays with them\n"
    )
    assert say(capfd, "publish", "story", "--withdraw", "--json").json == {
        "conversation": "story",
        "num_windows": 4,
        "num_continued": 2,
    }
    for flag in (("--dry-run",), ("--up-to", "3")):
        refused = say(capfd, "publish", "story", "--withdraw", *flag)
        assert refused.code == BadRequest.exit_code
        assert refused.out == ""


def test_what_cannot_be_is_refused(gliad: FakeGliad, world: World, story: Kept, capfd: Any) -> None:
    assert say(capfd, "publish", "nobody").code == UnknownConversation.exit_code
    assert "--up-to is out of range" in say(capfd, "publish", "story", "--up-to", "-1").err
    world.raises = NetworkError("this node is offline")
    assert say(capfd, "publish", "story").code == NetworkError.exit_code
