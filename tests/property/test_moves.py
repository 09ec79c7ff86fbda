"""Claims in whatever order, however often: Bodies that know the same agree on who has what."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from daemon.moves import Moves, joined, told
from glia.graph.claim import Claim, parse_claim, sign_claim
from glia.graph.journal import ConversationId
from glia.graph.neuron import NeuronId
from glia.graph.soul import Soul

SOUL = Soul(b"\3" * 32)
NAMES = [ConversationId(bytes([n]) * 32) for n in range(4)]
BODIES = [NeuronId(bytes([n]) * 32) for n in range(9, 12)]

claims = st.lists(
    st.builds(
        Claim,
        soul=st.just(SOUL.name),
        epoch=st.integers(1, 4),
        sequence=st.integers(1, 3),
        time_us=st.integers(1, 3),
        holder=st.sampled_from(BODIES),
        conversations=st.lists(st.sampled_from(NAMES), unique=True).map(tuple),
    ),
    max_size=8,
)


def after(said: list[Claim]) -> Moves:
    moves = Moves(SOUL.name.hex())
    for claim in said:
        moves = joined(moves, claim)
    return moves


def bearers(moves: Moves) -> dict[str, str]:
    return {name: each.holder for name, each in moves.bearers.items()}


@given(claims, st.randoms(use_true_random=False))
def test_order_and_replays_change_nothing(said: list[Claim], chance: object) -> None:
    moves = after(said)
    again = [*said, *said]
    chance.shuffle(again)  # type: ignore[attr-defined]
    other = after(again)
    assert bearers(other) == bearers(moves)
    assert (other.epoch, other.sequence) == (moves.epoch, moves.sequence)
    for name in NAMES:  # who claimed it with the largest epoch, then last
        of_it = [c for c in said if name in c.conversations]
        if of_it:
            last = max(of_it, key=lambda c: (c.epoch, c.time_us, c.holder))
            assert bearers(moves)[name.hex()] == last.holder.hex()
        else:
            assert name.hex() not in bearers(moves)


@given(claims)
def test_what_is_told_to_another_body_gives_it_the_same(said: list[Claim]) -> None:
    moves = after(said)
    heard = [parse_claim(sign_claim(claim, SOUL)) for claim in told(moves, SOUL)]
    assert bearers(after(heard)) == bearers(moves)


def test_many_are_told_in_parts() -> None:
    names = tuple(ConversationId(n.to_bytes(32, "big")) for n in range(2500))
    claim = Claim(SOUL.name, 1, 1, 1, BODIES[0], names)
    parts = told(after([claim]), SOUL)
    assert [len(part.conversations) for part in parts] == [1024, 1024, 452]
    assert all(len(sign_claim(part, SOUL)) < 64 * 1024 for part in parts)
    assert bearers(after(parts)) == bearers(after([claim]))
    assert after([replace(claim, conversations=())]).bodies == (BODIES[0].hex(),)
