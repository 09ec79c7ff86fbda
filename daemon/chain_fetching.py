"""The chain that a window ends, from peers into L1 and L2: records, who attests them, blocks.

As for a prompt (daemon/searching.py) nothing is kept but what those attest whose word is
taken: what is here is found by its tokens, and used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import trio

from daemon.attachments import Attachments
from daemon.binding import Binding
from daemon.bringing_chain import Coming, bring
from daemon.memory import Memory
from daemon.peering import Peering
from daemon.proving import Proven, prove
from daemon.telling import Tell
from daemon.verifying import verified
from daemon.ways import InPublic
from glia.errors import (
    BadRequest,
    HashMismatch,
    MalformedParticle,
    NetworkError,
    NotFound,
    PeerLost,
    QuotaExceeded,
    RemoteProtocolError,
)
from glia.graph.chain import prefix_keys
from glia.graph.ids import PrefixKey, short
from glia.graph.link import Link
from glia.graph.window import WindowRecord
from glia.local.values import SourceValue
from p2p.asking import Asking
from p2p.attesting import attested_by, num_attested
from p2p.finding import RECORDS_BUDGET_BYTES
from p2p.getter import Close
from p2p.host import PeerId
from p2p.messages import FIND, FoundChain
from p2p.search import Answer
from p2p.source import Provides
from p2p.walking import Question, Walk, record_bytes

_ASK_S = 10.0
_RESET_S = 1.0
_log = logging.getLogger("gliad.fetch")


@dataclass(frozen=True)
class Got:
    """A chain that is here now. `num_fetched`: windows of it that came."""

    num_windows: int
    num_fetched: int
    sources: list[SourceValue]


class ChainFetching:
    """One fetch.

    Args:
        peers: that have the tip.
        hold_s: how long what came is not announced.
        tell: hears how many tokens came.
    """

    def __init__(
        self,
        peering: Peering,
        memory: Memory,
        binding: Binding,
        tip: WindowRecord,
        peers: Sequence[PeerId],
        hold_s: float,
        tell: Tell,
    ) -> None:
        self._peering, self._memory, self._binding = peering, memory, binding
        self._peers, self._hold_s, self._tell = peers, hold_s, tell
        self._seen = memory.hidden.num_changes
        question = Question(binding.model_id, binding.profile, held=memory.records.get)
        num = tip.end // binding.profile.block_size
        self._walk = Walk(question, tip.window_id, num)
        self._chain: list[WindowRecord] = []
        self._keys: list[PrefixKey] = []

    async def run(self) -> Got:
        """Have it here. Whole windows that came stay, whatever else fails.

        Raises: as fetch_calls.answer.
        """
        await self._walk_back()
        walk, binding = self._walk, self._binding
        before = await self._memory.chain(walk.base.window_id) if walk.base else []
        self._chain = [*before, *walk.records]
        if not walk.records:
            return Got(len(before), 0, [])
        tokens = [token for record in self._chain for token in record.tokens]
        keys = prefix_keys(binding.model_id, binding.profile, tokens)
        self._keys = [binding.root_key, *keys]
        found = await self._attested()
        closed = await self._bring(found, self._keys[len(before)])
        await self._memory.flush([record.window_id for record in walk.records])
        await trio.to_thread.run_sync(self._offer, before, found.links)
        sources = [
            SourceValue(each.peer, each.num_blocks, each.num_bytes, each.verdict.value)
            for each in closed
        ]
        return Got(len(self._chain), len(walk.records), sources)

    async def _walk_back(self) -> None:
        """All records that are not here; where one peer stops, another goes on.

        How many there are is the word of whoever wrote the tip: held to the same bound as a
        prompt's, before any is asked for.
        """
        most_bytes = self._walk.num_windows * record_bytes(self._binding.profile)
        if most_bytes > RECORDS_BUDGET_BYTES:
            raise QuotaExceeded(
                f"{short(self._walk.tip)} says to be window {self._walk.num_windows:,} of its "
                f"chain: records of {most_bytes:,} bytes are more than is taken of peers",
                hint="--out FILE takes the record alone",
            )
        for peer in self._peers:
            with self._blaming(peer), trio.move_on_after(_ASK_S):
                async with self._asking(peer) as asking:
                    await asking.get_records(self._walk)
            if self._walk.is_over:
                return
        raise PeerLost(
            f"the records of {short(self._walk.tip)} did not all come", hint="ask again later"
        )

    async def _attested(self) -> Proven:
        """The whole chain with links of those whose word is taken. Raises: NotFound."""
        walk, chain = self._walk, self._chain
        num, num_before = len(chain), len(chain) - len(walk.records)
        takes = self._peering.believing.takes()
        hold: list[Link] = []
        may: list[Link] = []
        provides: list[Provides] = []
        for peer in self._peers:
            data = await self._links_of(peer)
            if data is None:
                continue
            provides.append(Provides(peer, num))
            is_passed_on = self._peering.believing.passes_on(peer)
            holding = await verified(self._peering.verify, data, chain, self._keys, time.time())
            heard = [link for link in holding[0] if is_passed_on or takes(link.signer)]
            await self._peering.overheard(self._binding.profile.scheme, chain, heard)
            for kind, links in zip((hold, may), holding, strict=True):
                kind += [
                    link
                    for link in links
                    if (takes(link.signer) and self._peering.believing.may_count(link.signer))
                    or (is_passed_on and self._peering.believing.may_count(link.signer))
                ]
        if not provides:
            raise PeerLost("whoever had the chain is gone", hint="ask again later")
        found = FoundChain(num, walk.tip, chain[-1].numerics_class, ())
        records = tuple(walk.records)
        answer = Answer(provides[0].peer, found, records, walk.base, tuple(provides))
        proven = await prove(
            InPublic(self._peering),
            self._binding.profile,
            self._keys,
            Proven(answer, chain, hold),
            may,
            _ASK_S,
        )
        if proven is None or len(proven.chain) < num:
            whole = num_attested(hold, num_before) if proven is None else len(proven.chain)
            raise NotFound(
                f"of {num:,} windows only {whole:,} are attested by those whose word is taken here",
                hint="gliad peers add MULTIADDR, or [network] accept in glia.toml, takes more",
            )
        return proven

    async def _links_of(self, peer: PeerId) -> tuple[bytes, ...] | None:
        """Links that a peer has of the chain; None where it does not have it."""
        num = len(self._chain)
        question = Question(self._binding.model_id, self._binding.profile)
        with self._blaming(peer), trio.move_on_after(_ASK_S):
            async with self._asking(peer) as asking:
                keys = [(num, self._keys[num])]
                for each in await asking.find(question, keys, want_records=False):
                    if each.tip == self._walk.tip:
                        return each.links
        return None

    def _offer(self, before: Sequence[WindowRecord], links: Sequence[Link]) -> None:
        """To others, unless it continues what was here and is shown to nobody: that may be
        private, and that it is part of a public chain is the word of whoever wrote the tip.
        What came and nobody attests is another Body's of this Soul, or nobody knows whose.
        Blocking. Raises: StoreError."""
        published, names = self._peering.published, [each.window_id for each in before]
        origins = published.foreign.origins(names)
        came = {name for name, origin in origins.items() if origin.signer is not None}
        if all(name in came or published.record(name) is not None for name in names):
            published.put(self._chain, links, int(time.time() + self._hold_s))

    async def _bring(self, found: Proven, key: PrefixKey) -> list[Close]:
        """The windows, into L1. Args: key: of the window before them."""
        coming = Coming(
            binding=self._binding,
            records=self._walk.records,
            base=self._walk.base,
            key=key,
            seen=self._seen,
            signers=attested_by(self._chain, found.links, self._peering.believing.trust_in),
            providers=found.answer.providers,
        )
        foreign = self._peering.published.foreign
        return await bring(InPublic(self._peering), foreign, self._memory, coming, self._tell)

    @contextmanager
    def _blaming(self, peer: PeerId) -> Iterator[None]:
        """What a peer does wrong is noted, and no more."""
        try:
            yield
        except (HashMismatch, RemoteProtocolError) as error:
            _log.info("asking %s: %s", peer, error)
            self._peering.lied(peer)
        except (MalformedParticle, NetworkError, NotFound) as error:
            _log.debug("asking %s: %s", peer, error)

    @asynccontextmanager
    async def _asking(self, peer: PeerId) -> AsyncIterator[Asking]:
        stream = await self._peering.open_stream(peer, FIND)
        try:
            yield Asking(stream)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()


def binding_of(attachments: Attachments, tip: WindowRecord) -> Binding:
    """What a window's model is loaded as. Raises: BadRequest where it never was here."""
    for each in attachments.all():
        if each.binding.fits(tip):
            return each.binding
    raise BadRequest(
        f"the window is of a model that was never loaded here: {tip.model_id.hex()}",
        hint="gliad models; gliad run MODEL TEXT loads one. --out FILE takes the record alone",
    )
