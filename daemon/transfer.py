"""One fetch of a chain's windows from peers, from the front or from the back."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Protocol

import trio

from daemon.binding import Binding
from daemon.peering import Peering
from glia.errors import ArenaExhausted, GliaError, MalformedParticle, StoreError, StoreFull
from glia.graph.domain import Salt
from glia.graph.ids import BlockId
from glia.graph.window import WindowRecord
from p2p.fetching import Fetch, Sink
from p2p.getter import Close, Session
from p2p.host import PeerId, Stream
from p2p.source import Provides

_log = logging.getLogger("gliad.transfer")


class Carries(Protocol):
    """What it needs of daemon.ways.Way."""

    peering: Peering
    salt: Salt | None

    async def open_blocks(self, peer: PeerId) -> Stream: ...


class Transfer:
    """It runs once.

    Args:
        records: what is wanted, in order; they follow `base`, or genesis where that is None.
        held: blocks that are here.
        nursery: runs what speaks to a peer.

    Attributes:
        closed: what each peer gave.
        failure: why what came could not be written, where that ended it.
    """

    def __init__(
        self,
        way: Carries,
        binding: Binding,
        records: Sequence[WindowRecord],
        base: WindowRecord | None,
        providers: Sequence[Provides],
        nursery: trio.Nursery,
        *,
        held: Collection[BlockId] = (),
        from_back: bool = False,
    ) -> None:
        self._way, self._binding, self._nursery = way, binding, nursery
        self._session = Session(
            records,
            base,
            binding.profile,
            providers,
            now_s=trio.current_time(),
            held=held,
            from_back=from_back,
            salt=way.salt,
        )
        self._fetch: Fetch | None = None
        self.closed: list[Close] = []
        self.is_cancelled = False
        self.failure: StoreError | StoreFull | None = None

    async def run(self, sink: Sink) -> str:
        """Why not all of it came, as FetchedValue says it; "" where it did."""
        self._fetch = Fetch(self._session, self._open, sink, self._done, self._nursery)
        try:
            await self._fetch.run()
        except ArenaExhausted:
            return "room"
        except MalformedParticle:
            return "broken"
        except (StoreError, StoreFull) as error:
            _log.warning("what peers send cannot be kept: %s", error)
            self.failure = error
            return "disk"
        except GliaError:  # what was here is gone
            return "lost"
        if self._session.malformed:
            return "broken"
        return "" if self._session.is_whole else "lost"

    def cancel(self) -> None:
        """Want nothing more."""
        self.is_cancelled = True
        if self._fetch is not None:
            self._fetch.cancel()

    async def _open(self, peer: PeerId) -> Stream:
        return await self._way.open_blocks(peer)

    def _done(self, close: Close) -> None:
        self.closed.append(close)
        self._way.peering.done(close, self._binding.model_id)
