"""Of what peers have, that is taken whose signers' word is taken (p2p/accepting.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from glia.graph.neuron import Signer
from p2p.testing.internet import Internet
from tests.resolver_parts import SIGNER, Node, chain_of, head, links_of, run

Run = Callable[..., None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return partial(run, monkeypatch, tmp_path)


@pytest.mark.parametrize("accept", ["known", "own"])
def test_what_strangers_attest_is_not_taken(world: Run, accept: str) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        offer = await node.meets("peer", chain)
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows, offer.num_reads) == ("untrusted", 0, 0)
        assert node.counters["chains_untrusted"] > 0
        assert not any(entry.num_bad for _, entry in node.peering.ledger.entries())
        node.peering.ledger.signs_as(net.host("friend").peer_id, SIGNER.neuron, 0.0)
        node.peering.ledger.trust(net.host("friend").peer_id, "known", 0.0)
        resolved = await node.resolve(chain)
        assert resolved.num_windows == (40 if accept == "known" else 0)

    world(main, accept=accept)


def test_where_only_some_windows_are_of_neurons_whose_word_is_taken_these_are(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        friend = Signer(b"\5" * 32)
        links = (*links_of(chain, 20), *links_of(head(chain, 20), 0, friend))
        await node.meets("peer", chain, links)
        peer = net.host("friend").peer_id
        node.peering.ledger.signs_as(peer, friend.neuron, 0.0)
        node.peering.ledger.trust(peer, "known", 0.0)
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows) == ("untrusted", 20)

    world(main, accept="known")


def test_what_a_peer_that_the_user_named_passes_on_is_taken(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("peer", chain)
        (connection,) = node.peering.host.connections()
        node.peering.ledger.trust(connection.peer, "known", 0.0)
        assert (await node.resolve(chain)).num_windows == 40

    world(main, accept="known")


@pytest.mark.parametrize("friend_s", [0.007, 0.008])
def test_what_a_stranger_says_of_a_chain_takes_nothing_from_who_is_trusted(
    world: Run, friend_s: float
) -> None:
    """Both are asked at once, and answer at about the same time."""

    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("friend", chain)
        (connection,) = node.peering.host.connections()
        node.peering.ledger.trust(connection.peer, "known", 0.0)
        await node.meets("stranger", chain)
        net.link("me", "friend", latency_s=friend_s)
        net.link("me", "stranger", latency_s=0.006)
        resolved = await node.resolve(chain, more=40 * 16)  # somebody could have more
        assert resolved.num_windows == 40

    world(main, accept="known")
