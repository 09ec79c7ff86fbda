"""Links that peers sent are verified beside the loop, some at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from daemon.binding import Binding
from daemon.searching import Searcher, wanted_of
from daemon.verifying import verified
from daemon.ways import InPublic
from glia.graph.domain import Salt
from glia.graph.group import GroupId, GroupSecret
from glia.graph.link import Link, accept_link
from glia.graph.profile import KvScheme
from p2p import attesting
from p2p.attesting import links_that_hold
from p2p.messages import FoundChain
from p2p.provider import InThreads
from p2p.testing.internet import Internet
from p2p.walking import Question, Walk
from simulations.virtual.ports import Joined, make_peering
from tests.builders import CLASS
from tests.exchange_parts import in_world
from tests.resolver_parts import PROFILE, chain_of, links_of

NUM_LINKS = 500
CHAIN = chain_of(16)
KEYS = wanted_of(Binding(CHAIN.model_id, PROFILE, CLASS), CHAIN.tokens, [], exact=True).keys
OTHERS = [link for seed in range(NUM_LINKS) for link in links_of(chain_of(1, seed=seed + 1))]
T = TypeVar("T")


@pytest.fixture
def verifiers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each link that is verified."""
    found: list[int] = []

    def accept(data: bytes, now_s: float) -> object:
        found.append(threading.get_ident())
        return accept_link(data, now_s)

    monkeypatch.setattr(attesting, "accept_link", accept)
    return found


def test_they_are_those_that_are_verified_at_once() -> None:
    links = [*OTHERS[:100], *links_of(CHAIN), *OTHERS, *links_of(CHAIN)]

    async def main() -> None:
        found = await verified(InThreads(1), links, CHAIN.records, KEYS, 1.0)
        assert found == links_that_hold(links, CHAIN.records, KEYS, 1.0)
        assert len(found[0]) == len(links_of(CHAIN))

    trio.run(main)


def test_the_loop_runs_meanwhile_and_who_is_cancelled_looks_at_no_more(
    verifiers: list[int],
) -> None:
    num_calls = 0
    num_turns = 0
    threads = InThreads(1)

    async def count() -> None:
        nonlocal num_turns
        while True:
            await trio.lowlevel.checkpoint()
            num_turns += 1

    async def call(work: Callable[[], T]) -> T:
        nonlocal num_calls
        num_calls += 1
        before = len(verifiers), num_turns
        found = await threads(work)
        assert len(verifiers) - before[0] <= 64
        assert num_turns > before[1]
        if num_calls == 3:
            scope.cancel()
        return found

    async def main() -> None:
        nonlocal scope
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            with trio.CancelScope() as scope:
                await verified(call, OTHERS, CHAIN.records, KEYS, 1.0)
            nursery.cancel_scope.cancel()

    scope = trio.CancelScope()
    trio.run(main)
    assert len(verifiers) == 3 * 64


def test_a_search_verifies_none_on_the_loop(tmp_path: Path, verifiers: list[int]) -> None:
    async def main(net: Internet) -> None:
        async with trio.open_nursery() as nursery:
            peering = make_peering(tmp_path / "me", Joined(net, "me"), accept="any")
            peering.verify = InThreads(1)
            binding = Binding(CHAIN.model_id, PROFILE, CLASS)
            searcher = Searcher(InPublic(peering), Counter(), nursery)
            wanted = wanted_of(binding, CHAIN.tokens, [], exact=True)
            walk = Walk(Question(CHAIN.model_id, PROFILE), CHAIN.records[-1].window_id, 16)
            walk.take([each.encoding for each in CHAIN.records[::-1]])
            chain = FoundChain(16, walk.tip, CLASS, (*OTHERS, *links_of(CHAIN)))
            assert await searcher._check(wanted, {}, net.host("other").peer_id, chain, walk)
        assert len(verifiers) == NUM_LINKS + len(links_of(CHAIN))
        assert threading.get_ident() not in verifiers

    in_world(main)


@pytest.mark.parametrize(
    ("accept", "salt", "is_taken", "is_kept"),
    [
        ("any", None, True, True),
        ("own", None, False, False),
        ("any", Salt(GroupId(bytes(32)), 16, GroupSecret(bytes(32))), True, False),
    ],
    ids=["public", "not taken", "of a group"],
)
def test_what_promises_are_kept(
    tmp_path: Path, accept: str, salt: Salt | None, is_taken: bool, is_kept: bool
) -> None:
    """Neurons cost nothing: who is nobody here could fill what is kept, and push out the rest.
    And promises hold tokens in the clear: those of a group are on disk as ciphertext alone."""

    async def main(net: Internet) -> None:
        async with trio.open_nursery() as nursery:
            peering = make_peering(tmp_path / "me", Joined(net, "me"), accept=accept)
            heard: list[Link] = []

            async def overheard(_: KvScheme, __: object, links: Sequence[Link]) -> None:
                heard.extend(links)

            peering.overheard = overheard
            binding = Binding(CHAIN.model_id, PROFILE, CLASS)
            searcher = Searcher(InPublic(peering), Counter(), nursery)
            wanted = replace(wanted_of(binding, CHAIN.tokens, [], exact=True), salt=salt)
            walk = Walk(Question(CHAIN.model_id, PROFILE), CHAIN.records[-1].window_id, 16)
            walk.take([each.encoding for each in CHAIN.records[::-1]])
            chain = FoundChain(16, walk.tip, CLASS, tuple(links_of(CHAIN)))
            peer = net.host("other").peer_id
            assert await searcher._check(wanted, {}, peer, chain, walk) is is_taken
            assert bool(heard) is is_kept

    in_world(main)
