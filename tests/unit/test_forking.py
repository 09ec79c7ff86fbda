"""A fork has the first tokens, the messages of these, and the window that they end in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from daemon.conversations import Conversations
from daemon.forking import fork
from daemon.memory import Memory
from glia.errors import BadRequest, ConversationBusy, NotFound, UnknownConversation
from glia.graph.conversation import Origin
from glia.graph.ids import WindowId
from glia.graph.tokens import unpack_tokens
from glia.graph.window import WindowRecord
from tests.builders import Chain, make_chain
from tests.conversation_parts import SAID, bytes_of, log_of, opened, run, talk, tip_of, turn_of


@dataclass
class Stored:
    """Windows that can be walked to."""

    chains: Sequence[Chain] = field(default_factory=list)

    async def chain(self, tip: WindowId) -> list[WindowRecord]:
        for chain in self.chains:
            if tip in chain.window_ids:
                return list(chain.records[: chain.window_ids.index(tip) + 1])
        raise NotFound("not known here")


CHAIN = make_chain(4)
TOKENS = [*CHAIN.tokens, 1, 2, 3]
ASKED = [SAID("system", "s", 0, 10), SAID("user", "u", 12, 60)]


@pytest.fixture
def talks(tmp_path: Path) -> Conversations:
    made = opened(tmp_path / "conversations")
    run(talk, made, TOKENS, [7], turn_of("a", 0, *ASKED), tip=CHAIN.tip)
    return made


def forked(
    talks: Conversations, num: int | None, chains: Sequence[Chain] = (CHAIN,), new: str = "b"
) -> WindowId | None:
    run(fork, talks, cast(Memory, Stored(chains)), "a", new, num)
    return talks.head(new).tip


@pytest.mark.parametrize("num", [None, 0, 1, 15, 16, 17, 33, 63, 64, 67, 68])
def test_a_fork_is_the_first_tokens(talks: Conversations, tmp_path: Path, num: int | None) -> None:
    before = bytes_of(tmp_path / "conversations")
    tip = forked(talks, num)
    end = len(TOKENS) + 1 if num is None else num
    for each in (talks, opened(tmp_path / "conversations")):
        replay = run(each.read, "b")
        assert list(unpack_tokens(bytes(replay.tokens))) == [*TOKENS, 7][:end]
        assert replay.head.origin == Origin("a", end)
        assert replay.head.tip == tip == (CHAIN.window_ids[end // 16 - 1] if end >= 16 else None)
        whole = [message for message in ASKED if message.end <= end]
        said = [(m.role, m.content, m.start, m.end) for m in replay.messages]
        assert said[: len(whole)] == [(m.role, m.content, m.start, m.end) for m in whole]
        assert all(m[1] is None and m[3] == end for m in said[len(whole) :])
    assert bytes_of(tmp_path / "conversations")["a.conv"] == before["a.conv"]


def test_the_two_go_their_own_ways(talks: Conversations) -> None:
    forked(talks, 20)
    run(talk, talks, [*TOKENS[:20], 5], [6], turn_of("b", 20), tip=tip_of(9))
    run(talk, talks, [*TOKENS, 7, 8], [9], turn_of("a", 68), tip=tip_of(8))
    assert log_of(talks, "b") == (*TOKENS[:20], 5, 6)
    assert log_of(talks, "a") == (*TOKENS, 7, 8, 9)
    assert talks.head("b").tips == (CHAIN.window_ids[0], tip_of(9))


def test_an_older_tip_is_walked_to_where_the_last_one_is_gone(talks: Conversations) -> None:
    run(talk, talks, [*TOKENS, 7, *[5] * 12], [6], turn_of("a", 68), tip=tip_of(9))
    assert forked(talks, 40) == CHAIN.window_ids[1]
    assert forked(talks, 81, new="c") is None  # that window was the lost tip's
    assert forked(talks, 40, (), "d") is None


def test_a_chain_of_other_tokens_is_not_its_own(talks: Conversations) -> None:
    other = make_chain(4, seed=1)
    cut = [*TOKENS[:20], *other.tokens[20:]]
    run(talk, talks, cut, [6], turn_of("a", 20), tip=other.tip)
    assert forked(talks, 40, [CHAIN, other]) is None
    assert forked(talks, 16, [CHAIN, other], "c") == CHAIN.window_ids[0]


def test_labels_stay_as_strict(tmp_path: Path) -> None:
    talks = opened(tmp_path / "conversations")
    asked = [SAID("system", "s", 0, 10, "public"), SAID("user", "u", 20, 60, "private")]
    run(talk, talks, TOKENS, [7], turn_of("a", 0, *asked))
    for num, label in ((10, "public"), (15, "private"), (30, "private")):
        forked(talks, num, (), f"f{num}")
        assert talks.value(f"f{num}").visibility == label
        said = SAID("user", "x", num, num + 1, "public")
        run(talk, talks, [*TOKENS[:num], 9], [1], turn_of(f"f{num}", num, said))
        assert talks.value(f"f{num}").visibility == label


def test_forks_that_cannot_be(talks: Conversations, tmp_path: Path) -> None:
    before = bytes_of(tmp_path / "conversations")
    memory = cast(Memory, Stored())
    for name, new, num, error in (
        ("a", "b", 69, BadRequest),
        ("nobody", "b", None, UnknownConversation),
        ("a", "a", None, BadRequest),
        ("a", "../b", None, BadRequest),
        ("a", "@01234567", None, BadRequest),
    ):
        with pytest.raises(error) as caught:
            run(fork, talks, memory, name, new, num)
        assert caught.value.hint
    with talks.making("b"), pytest.raises(ConversationBusy):
        run(fork, talks, memory, "a", "b", None)
    assert bytes_of(tmp_path / "conversations") == before
