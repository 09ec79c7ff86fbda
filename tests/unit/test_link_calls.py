"""Who attests what, and what continues a block, of that which peers see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, cast

import pytest
import trio

from daemon.link_calls import answer, next_blocks
from daemon.parts import Parts
from glia.errors import NetworkError, NotFound
from glia.graph.ids import BlockId, ModelId, WindowId, genesis_block
from glia.graph.link import sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.local import messages as m
from glia.local.network_values import LinkValue
from glia.store.heard import Heard
from glia.store.published import Published
from p2p.accepting import Acquaintance
from p2p.host import PeerId
from p2p.ledger import Ledger
from p2p.neurons import Neurons
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain, make_profile

OURS, THEIRS = Signer(b"\1" * 32), Signer(b"\2" * 32)
KINDS = [(MODEL, TINY)]
OTHER_MODEL = ModelId(b"\7" * 32)


@dataclass
class Network:
    published: Published
    heard: Heard
    signer: Signer = OURS
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def acquaintance(self) -> Acquaintance:
        return Acquaintance(self.ledger, self.signer.neuron, [], Neurons())

    @property
    def believing(self) -> Self:
        """All that is asked of it is here."""
        return self

    def takes(self) -> Callable[[bytes], bool]:
        return lambda neuron: neuron == self.signer.neuron


@dataclass
class Node:
    peering: Network | None


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(Published(tmp_path / "published"), Heard(tmp_path / "heard"))
    yield made
    made.published.close()
    made.heard.close()


def show(network: Network, chain: Chain, signer: Signer = OURS, num_before: int = 0) -> None:
    said = claims(chain.records, num_before)
    links = [sign_link(signer, claim, 1 + at, 1000) for at, claim in enumerate(said)]
    network.published.put(chain.records, links)


def links_of(network: Network | None, **asked: Any) -> list[LinkValue]:
    reply = trio.run(answer, cast(Parts, Node(network)), m.Links(1, **asked))
    assert isinstance(reply, m.LinksReply)
    assert reply.total == len(reply.links) + asked.get("start", 0)
    return reply.links


def spans(links: list[LinkValue]) -> list[tuple[int, int]]:
    return sorted((link.num_before, link.num_windows) for link in links)


def test_links_of_a_chain_of_a_model_or_of_all(network: Network) -> None:
    chain = make_chain(20)
    fork = make_chain(2, base=make_chain(16), seed=2)
    other = make_chain(3, model_id=OTHER_MODEL)
    show(network, chain)
    show(network, fork, THEIRS, 16)
    show(network, other)
    ours = links_of(network, tip=chain.tip)
    assert spans(ours) == [(0, 16), (16, 20)]
    assert {(link.trust, link.accepted) for link in ours} == {("own", True)}
    theirs = [link for link in links_of(network, tip=fork.tip) if not link.own]
    assert [(link.trust, link.accepted) for link in theirs] == [("stranger", False)]
    peer = PeerId("peer")
    network.ledger.signs_as(peer, THEIRS.neuron, 0.0)
    network.ledger.ban(peer, True, 0.0)
    assert "banned" in {link.trust for link in links_of(network, tip=fork.tip)}
    of_fork = links_of(network, tip=fork.tip)
    assert [(each.own, each.num_before) for each in of_fork] == [(False, 16), (True, 0)]
    assert {each.signer for each in of_fork} == {OURS.neuron, THEIRS.neuron}
    assert spans(links_of(network, model_id=OTHER_MODEL)) == [(0, 3)]
    assert spans(links_of(network)) == [(0, 3), (0, 16), (16, 18), (16, 20)]
    assert len(links_of(network, start=3)) == 1
    with pytest.raises(NotFound, match="visible to peers"):
        links_of(network, tip=b"\0" * 32)
    with pytest.raises(NetworkError):
        links_of(None)


def test_what_others_say_of_the_same_tokens_is_shown_as_heard(network: Network) -> None:
    chain = make_chain(3)
    show(network, chain)
    elsewhere = make_chain(3, numerics_class="native:other")
    (claim,) = claims(elsewhere.records, 0)
    network.heard.add(sign_link(THEIRS, claim, 1, 1000))
    found = links_of(network, tip=chain.tip)
    assert [(each.source, each.own) for each in found] == [("published", True), ("heard", False)]
    assert found[1].tip == elsewhere.tip


def following(
    network: Network, block: bytes, layer: int, tokens: tuple[int, ...] = ()
) -> dict[WindowId, bytes]:
    found = next_blocks(network.published, KINDS, m.NextBlock(1, block, layer, list(tokens)))
    return {WindowId(each.window): each.block for each in found}


@pytest.mark.spec(21)
def test_every_published_continuation_of_a_block_is_known(network: Network) -> None:
    base = make_chain(2)
    one, two = (make_chain(1, base=base, seed=seed) for seed in (1, 2))
    foreign = make_chain(1, base=base, seed=3, numerics_class="native:other")
    hidden = make_chain(1, base=base, seed=4)
    for chain, signer in ((one, OURS), (two, THEIRS), (foreign, THEIRS)):
        show(network, chain, signer)
    for index, shape in enumerate(TINY.layers):
        block = base.records[-1].blocks[index]
        found = following(network, block, shape.layer)
        assert found == {
            chain.tip: chain.records[-1].blocks[index] for chain in (one, two, foreign)
        }
        assert hidden.tip not in found
        some = two.records[-1].tokens
        assert following(network, block, shape.layer, some[:5]).keys() == {two.tip}
        assert following(network, block, shape.layer, (*some, 1)) == {}
    (value,) = next_blocks(
        network.published, KINDS, m.NextBlock(1, base.records[0].blocks[1], 1, [])
    )
    assert value.block == base.records[1].blocks[1]
    assert (value.position_start, value.numerics_class) == (TINY.block_size, CLASS)
    assert tuple(value.tokens) == base.records[1].tokens
    assert set(value.signers) == {OURS.neuron, THEIRS.neuron}


def test_a_genesis_is_continued_too_and_a_block_of_another_layer_is_not(network: Network) -> None:
    one, two = make_chain(1, seed=1), make_chain(1, seed=2)
    show(network, one)
    show(network, two)
    root = genesis_block(MODEL, TINY.profile_id, 1)
    assert following(network, root, 1).keys() == {one.tip, two.tip}
    assert following(network, root, 0) == {}
    longer = make_chain(1, base=one, seed=3)
    show(network, longer)
    block = one.records[0].blocks[0]
    assert following(network, block, 0).keys() == {longer.tip}
    assert following(network, block, 1) == {}
    assert following(network, block, 7) == {}
    assert following(network, BlockId(b"\0" * 32), 0) == {}
    call = m.NextBlock(1, block, 0, [])
    assert next_blocks(network.published, [(MODEL, make_profile(num_layers=3))], call) == []
