"""Answers members, and who relays (spec/group-exchange.md, spec/group-relay.md).

What a stream shows is checked once, before anything is looked up for it. Whoever may not is
answered as one that asks for what is not there, from an offer of nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from glia.graph.group import GroupId
from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from p2p.frames import Reader
from p2p.group_relay import GROUP_RELAY, Catalogue, NothingKept, answer_relay
from p2p.host import Host, PeerId, Stream
from p2p.offer import Candidate, Offer
from p2p.provider import Provider, RunBlocking
from p2p.showing import GROUP_BLOCKS, GROUP_FIND, decode_show

BEGIN_TIMEOUT_S = 60.0  # a stream may be opened before it is needed
STREAM_S = 3600.0

CatalogueOf = Callable[[GroupId, bytes, PeerId], Catalogue]
OfferOf = Callable[[GroupId, bytes, PeerId], Offer]  # of a group, a capability, who shows it


class Nothing:
    """The Offer of what nobody ever had."""

    def match(
        self, _model: ModelId, _profile: ProfileId, _keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        """See Offer."""
        return []

    def records(self, _tip: WindowId, _num_windows: int, _start: int) -> list[bytes]:
        """See Offer."""
        return []

    def record(self, _window_id: WindowId) -> bytes | None:
        """See Offer."""
        return None

    def read_blocks(
        self, block_ids: Sequence[BlockId], _into: memoryview
    ) -> list[memoryview | None]:
        """See Offer."""
        return [None] * len(block_ids)

    def has_block(self, _block_id: BlockId) -> bool:
        """See Offer."""
        return False

    def next_links(self, _window_id: WindowId) -> list[bytes]:
        """See Offer."""
        return []


class GroupProvider:
    """The handlers. What members are given counts against the bounds that all peers share.

    Args:
        provider: answers as it does of what is public.
        offer_of: what somebody may see; `Nothing` for whatever reason. Called as `run` calls.
            Never raises.
        catalogue_of: the same of what is told who relays.
    """

    def __init__(
        self,
        provider: Provider,
        offer_of: OfferOf,
        run: RunBlocking,
        catalogue_of: CatalogueOf = lambda *_: NothingKept(),
    ) -> None:
        self._provider, self._offer_of, self._run = provider, offer_of, run
        self._catalogue_of = catalogue_of

    def serve_on(self, host: Host) -> None:
        """Answer on this host from now on."""
        host.serve(GROUP_FIND, self.find, timeout_s=STREAM_S)
        host.serve(GROUP_BLOCKS, self.blocks, timeout_s=STREAM_S)
        host.serve(GROUP_RELAY, self.relay, timeout_s=STREAM_S)

    async def find(self, stream: Stream) -> None:
        """/glia/group/find/1. Raises: PeerLost, RemoteProtocolError."""
        await self._provider.answer_finds(stream, self._begin)

    async def blocks(self, stream: Stream) -> None:
        """/glia/group/blocks/1, over any stream that proves its peer. Raises: as `find`."""
        await self._provider.answer_blocks(stream, self._begin)

    async def relay(self, stream: Stream) -> None:
        """/glia/group/relay/1. Raises: as `find`."""
        await self._provider.answer_frames(stream, self._begin_relay)

    async def _begin(self, reader: Reader, peer: PeerId) -> Offer:
        shown = await self._shown(reader)
        if shown is None:
            return Nothing()
        group, capability = shown
        return await self._run(lambda: self._offer_of(group, capability, peer))

    async def _begin_relay(self, reader: Reader, peer: PeerId) -> Callable[[bytes], bytes]:
        shown = await self._shown(reader)
        if shown is None:
            return partial(answer_relay, NothingKept())
        group, capability = shown
        catalogue = await self._run(lambda: self._catalogue_of(group, capability, peer))
        return partial(answer_relay, catalogue)

    async def _shown(self, reader: Reader) -> tuple[GroupId, bytes] | None:
        said = await reader.frame(BEGIN_TIMEOUT_S)
        if said is None:
            return None
        shown = decode_show(said)
        return GroupId(shown.group), shown.capability
