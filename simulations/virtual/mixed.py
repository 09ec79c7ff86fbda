"""Conversations that are public in part, what of them is secret, and who asks for all of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from glia.errors import GliaError
from glia.graph.boundaries import pairs
from glia.graph.cid import cid_bytes
from glia.graph.ids import BlockId
from glia.graph.tokens import pack_tokens
from p2p.asking import Asking
from p2p.frames import Reader, encode_frame
from p2p.host import Host, PeerId
from p2p.messages import BLOCKS, FIND, PARTICLE, GetBlocks, Have, encode
from p2p.walking import Question, Walk
from simulations.virtual.chains import TINY, Chain, make_chain
from simulations.virtual.tap import SENTINEL_BYTES

SIZE = TINY.block_size


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

    def settle(self, *seeds: bytes) -> None:
        """What is shown somewhere is no secret; the seeds of neurons are."""
        self.private -= self.shown
        self.private.update(seed[:SENTINEL_BYTES] for seed in seeds)


def conversations(rng: random.Random, num: int) -> Iterator[Said]:
    """Public systems before private turns, all private, all public, mixed, shown by hand."""
    systems = [tuple(rng.choices(range(2**20, 2**31), k=rng.randint(20, 90))) for _ in range(4)]
    for number in range(num):
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
