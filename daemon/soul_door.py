"""Who may have the windows of conversations that moved away, and the streams on which to ask.

Each node answers on them, whether it has a Soul, and gives, or not: what is refused, and what
was never there, is an offer of nothing.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import takewhile

import trio

from daemon.conversations import Conversations
from daemon.memory import Memory
from daemon.parting import Parting
from daemon.peering import Peering
from daemon.soul_peers import SoulPeers
from daemon.soul_state import SoulState
from glia.errors import MalformedParticle, NotFound
from glia.graph.journal import id_of
from glia.graph.soul import SoulId
from glia.graph.window import WindowRecord
from p2p.bearing import SOUL_BLOCKS, SOUL_FIND, answer_bearer
from p2p.frames import Reader
from p2p.host import PeerId, Stream
from p2p.offer import Offer

_STREAM_S = 3600.0
_MAX_WINDOWS = 2**16  # of all conversations that moved; what is beyond is not offered


class SoulDoor:
    """It is open if `gives`, for whoever has proved the Soul's secret, and for nobody else."""

    def __init__(
        self,
        peering: Peering,
        souls: SoulPeers,
        state: SoulState,
        conversations: Conversations,
        memory: Memory,
        *,
        gives: bool,
    ) -> None:
        self._peering, self._souls, self._state = peering, souls, state
        self._conversations, self._memory, self._gives = conversations, memory, gives
        self._nothing = Parting((), memory.store)
        self._provider = peering.provider_of(self._nothing)
        peering.on_up.append(self._serve)

    def _serve(self) -> None:
        host = self._peering.host
        host.serve(SOUL_FIND, self._find, timeout_s=_STREAM_S)
        host.serve(SOUL_BLOCKS, self._blocks, timeout_s=_STREAM_S)

    async def _find(self, stream: Stream) -> None:
        await self._provider.answer_finds(stream, partial(self._begin, stream))

    async def _blocks(self, stream: Stream) -> None:
        await self._provider.answer_blocks(stream, partial(self._begin, stream))

    async def _begin(self, stream: Stream, reader: Reader, _peer: PeerId) -> Offer:
        """What a stream is answered from. Raises: PeerLost."""
        soul = await self._souls.soul()
        is_bearer = await answer_bearer(stream, reader, self._peering.host.peer_id, soul)
        if not (self._gives and is_bearer and soul is not None):
            return self._nothing
        chains = await self._moved(soul.name)
        return await trio.to_thread.run_sync(Parting, chains, self._memory.store)

    async def _moved(self, soul: SoulId) -> list[list[WindowRecord]]:
        """The chains of conversations of a Soul that other Bodies have, up to groups' domains."""
        bearers = self._state.of(soul).bearers
        chains: list[list[WindowRecord]] = []
        room = _MAX_WINDOWS
        for name in self._conversations.names():
            head = self._conversations.head(name)
            claimed = bearers.get(id_of(head.begin).hex())
            if claimed is None or not self._state.is_others(claimed):
                continue
            for tip in head.tips:
                with suppress(NotFound, MalformedParticle):
                    whole = await self._memory.chain(tip)
                    chain = [*takewhile(lambda record: record.root is None, whole)]
                    room -= len(chain)
                    if room >= 0:
                        chains.append(chain)
        return chains
