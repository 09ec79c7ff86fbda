"""Answers members: /glia/group/find/1, /glia/group/blocks/1 (spec/group-exchange.md).

What a stream shows is checked once, before anything is looked up for it. Whoever may not is
answered as one that asks for what is not there, from an offer of nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glia.graph.group import GroupId
from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from p2p.frames import Reader
from p2p.host import Host, PeerId, Stream
from p2p.offer import Candidate, Offer
from p2p.provider import Provider, RunBlocking
from p2p.showing import GROUP_BLOCKS, GROUP_FIND, decode_show

BEGIN_TIMEOUT_S = 60.0  # a stream may be opened before it is needed
STREAM_S = 3600.0

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
    """

    def __init__(self, provider: Provider, offer_of: OfferOf, run: RunBlocking) -> None:
        self._provider, self._offer_of, self._run = provider, offer_of, run

    def serve_on(self, host: Host) -> None:
        """Answer on this host from now on."""
        host.serve(GROUP_FIND, self.find, timeout_s=STREAM_S)
        host.serve(GROUP_BLOCKS, self.blocks, timeout_s=STREAM_S)

    async def find(self, stream: Stream) -> None:
        """/glia/group/find/1. Raises: PeerLost, RemoteProtocolError."""
        await self._provider.answer_finds(stream, self._begin)

    async def blocks(self, stream: Stream) -> None:
        """/glia/group/blocks/1, over any stream that proves its peer. Raises: as `find`."""
        await self._provider.answer_blocks(stream, self._begin)

    async def _begin(self, reader: Reader, peer: PeerId) -> Offer:
        said = await reader.frame(BEGIN_TIMEOUT_S)
        if said is None:
            return Nothing()
        shown = decode_show(said)
        group = GroupId(shown.group)
        return await self._run(lambda: self._offer_of(group, shown.capability, peer))
