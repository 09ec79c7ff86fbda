"""F27: of mixed conversations nothing that is private leaves the node, whoever asks for it.

Everything is real but the wires and the engine: labels, log, publisher, announcer, resolver,
egress, provider. A stranger who knows every name asks for all of them.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from daemon.announcer import Announcer
from daemon.egress import Egress
from daemon.hearing import Hearing
from daemon.link_calls import _links
from daemon.publisher import Publisher
from daemon.turns import open_turn
from glia.errors import GliaError
from glia.graph.boundaries import pairs
from glia.graph.cid import cid_bytes
from glia.graph.ids import BlockId
from glia.graph.neuron import Signer
from glia.graph.tokens import pack_tokens
from glia.local import messages as m
from p2p.asking import Asking
from p2p.frames import Reader, encode_frame
from p2p.host import Host, PeerId
from p2p.messages import BLOCKS, FIND, PARTICLE, GetBlocks, Have, encode
from p2p.testing.internet import Internet
from p2p.walking import Question, Walk
from simulations.virtual.tap import SENTINEL_BYTES, Outbound, found_in
from tests.announce_parts import now_s
from tests.builders import MODEL, TINY, Chain, make_chain
from tests.conversation_parts import SAID, answer_of, attach_of, call_of, opened, turn_of
from tests.node_parts import FULL
from tests.resolver_parts import Node, run
from tests.store_parts import sealed

NUM_CONVERSATIONS = 1_000 if FULL else 40
HOLD_S = 60.0
SIZE = TINY.block_size
SECRET = bytes(range(100, 132))  # the neuron's


@dataclass
class Said:
    """A conversation: a chain of windows, and how many of its leading tokens are public."""

    name: str
    chain: Chain
    messages: Sequence[tuple[int, int, str]]
    num_public: int
    by_hand: int | None = None  # so many tokens are published whatever their labels say

    @property
    def num_shown(self) -> int:
        """Windows that may be seen."""
        return max(self.num_public, self.by_hand or 0) // SIZE


@dataclass
class Secrets:
    """Sentinels of what is private and of what is shown."""

    private: set[bytes] = field(default_factory=set)
    shown: set[bytes] = field(default_factory=set)
    private_tokens: set[int] = field(default_factory=set)

    def add(self, said: Said) -> None:
        chain, shown = said.chain, said.num_shown
        for number, (record, particles, key) in enumerate(
            zip(chain.records, chain.particles, chain.keys, strict=True)
        ):
            names = [record.window_id, key, *record.blocks, pack_tokens(record.tokens[4:6])]
            names += [particle[-120:] for particle in particles]
            kind = self.shown if number < shown else self.private
            kind.update(name[:SENTINEL_BYTES] for name in names)
            if record.position_start >= max(said.num_public, said.by_hand or 0):
                self.private_tokens.update(record.tokens)

    def settle(self) -> None:
        """What is shown somewhere is no secret; the neuron's seed is."""
        self.private -= self.shown
        self.private.add(SECRET[:SENTINEL_BYTES])


def conversations(rng: random.Random) -> Iterator[Said]:
    """Public systems before private turns, all private, all public, mixed, shown by hand."""
    systems = [tuple(rng.choices(range(2**20, 2**31), k=rng.randint(20, 90))) for _ in range(4)]
    for number in range(NUM_CONVERSATIONS):
        tokens: list[int] = []
        messages: list[tuple[int, int, str]] = []
        wanted = [rng.choice(("public", "public", "private")) for _ in range(rng.randint(1, 4))]
        wanted[0] = rng.choice(("public", "private"))
        for label in wanted:
            start = len(tokens)
            is_system = not start and rng.random() < 0.5
            more = (
                rng.choice(systems)
                if is_system
                else rng.choices(range(2**20, 2**31), k=rng.randint(1, 70))
            )
            tokens += more
            messages.append((start, len(tokens), label))
        rest = -len(tokens) % SIZE
        tokens += rng.choices(range(2**20, 2**31), k=rest)
        start, _, label = messages.pop()
        messages.append((start, len(tokens), label))
        chain = make_chain(len(tokens) // SIZE, tokens=tokens)
        labels = [label for _, _, label in messages]
        strict = labels.index("private") if "private" in labels else len(labels)
        num_public = messages[strict][0] if strict < len(labels) else len(tokens)
        by_hand = rng.randint(1, len(tokens)) if rng.random() < 0.1 else None
        yield Said(f"c{number}", chain, messages, num_public, by_hand)


async def hold_conversation(node: Node, world: World, said: Said) -> None:
    """Look its prompt up among peers, compute it, and keep it."""
    spoken = [SAID("user", None, start, end, label) for start, end, label in said.messages]
    call = call_of(said.chain.tokens, turn_of(said.name, 0, *spoken))
    async with open_turn(world.conversations, call) as turn:
        turn.accept(attach_of())
        assert turn.num_public == said.num_public
        await node.resolve(said.chain, turn.num_public)
        node.store.put(sealed(said.chain))
        await turn.commit(answer_of(call, [7], said.chain.tip))


async def ask_for_all(stranger: Host, node: PeerId, said: Said) -> None:
    """By every name that there is; what comes back is in the recording."""
    chain = said.chain
    question = Question(chain.model_id, chain.profile)
    for work in (
        lambda asking: asking.find(
            question, pairs(chain.keys, range(1, len(chain.keys) + 1)), want_records=True
        ),
        lambda asking: asking.get_records(Walk(question, chain.tip, len(chain.records))),
        lambda asking: asking.next_links(chain.records[said.num_shown - 1].window_id),
        lambda asking: asking.next_links(chain.tip),
    ):
        stream = await stranger.open(node, FIND)
        with suppress(GliaError):  # absent, as what nobody ever had
            await work(Asking(stream))
        await stream.reset()
    ids: list[BlockId] = [name for name, _ in chain.blocks()]
    for request in (GetBlocks(tuple(ids)), Have(tuple(ids))):
        stream = await stranger.open(node, BLOCKS)
        await stream.send_all(encode_frame(encode(request)))
        await trio.sleep(1.0)
        await stream.reset()
    stream = await stranger.open(node, PARTICLE)
    reader = Reader(stream)
    for name in (*ids, *chain.window_ids):
        await stream.send_all(encode_frame(cid_bytes(name)))
        await reader.exactly(await reader.length(5.0) or 0)
    await stream.reset()


class World:
    """What a node does for others, on one virtual clock."""

    def __init__(self, node: Node, nursery: trio.Nursery) -> None:
        peering = node.peering
        peering.signer = Signer(SECRET)
        self.conversations = opened(node.path / "conversations")
        self.publisher = Publisher(
            node.memory,
            self.conversations,
            peering.published,
            peering.signer,
            trio.Lock(),
            HOLD_S,
            peering.counters,
            now_s,
        )
        self.conversations.on_change = self.publisher.wake
        egress, hearing = Egress(peering.published, node.store), Hearing(peering, now_s)
        peering.serve(egress)
        announcer = Announcer(
            peering,
            hearing,
            egress.has_window,
            lambda: [MODEL],
            random.Random(1),
            keep=lambda tip: node.store.touch([tip]),
            replicas=3,
            now_s=now_s,
        )
        self.publisher.on_publish = announcer.wake
        for part in (self.publisher.run, announcer.run, hearing.run):
            nursery.start_soon(part)


@pytest.mark.spec(33)
@pytest.mark.spec(47)
@pytest.mark.spec(50)
@pytest.mark.fault("F27")
def test_nothing_private_leaves_the_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rng, secrets = random.Random(27), Secrets()
    everything = list(conversations(rng))
    for said in everything:
        secrets.add(said)
    secrets.settle()
    texts: list[str] = []

    async def main(node: Node, net: Internet) -> None:
        stranger = net.host("stranger")
        await node.knows(stranger)
        out = Outbound()
        out.tap(node.peering.host)
        async with trio.open_nursery() as nursery:
            world = World(node, nursery)
            for said in everything:
                await hold_conversation(node, world, said)
                if said.by_hand is not None:
                    await world.publisher.publish(said.name, said.by_hand, dry=False)
            await trio.sleep(1.0)
            told = {"provide", "put", "publish"} & out.kinds.keys()
            assert not told  # all of it is held yet
            for said in everything:
                await ask_for_all(stranger, node.peering.host.peer_id, said)
            await trio.sleep(HOLD_S + 20.0 * len(everything))
            counters = node.peering.counts()
            links = _links(node.peering, m.Links(1))
            texts.extend([json.dumps(counters), repr(links), repr(node.peering.ledger.entries())])
            nursery.cancel_scope.cancel()
        assert counters["announce_backlog"] == 0
        assert out.kinds["provide"] == 2 * counters["announced"] > 0
        assert out.kinds["providers"] > 0  # prompts were looked up
        leaked = found_in(out.bytes, secrets.private)
        seen = found_in(out.bytes, secrets.shown)
        print(f"f27_private_in_{len(out.bytes)}_bytes", len(leaked), 0)
        assert not leaked
        assert len(seen) > 0.8 * len(secrets.shown)  # the search finds what is there

    run(monkeypatch, tmp_path, main)
    said_aloud = " ".join([*texts, caplog.text])
    hexes = {name.hex() for name in secrets.private}
    words = re.findall(r"[0-9a-f]{16,}", said_aloud)
    assert not {w[at : at + 16] for w in words for at in range(len(w) - 15)} & hexes
    assert not {int(w) for w in re.findall(r"\d{7,10}", said_aloud)} & secrets.private_tokens
    assert not found_in(said_aloud.encode("utf-8", "surrogateescape"), secrets.private)
