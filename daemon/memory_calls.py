"""The memory calls of one connection, Attach to Flush, one after the other.

Owns what dies with the connection: its binding, staging area and leases.
"""

from __future__ import annotations

from daemon.arena import SharedMemory
from daemon.binding import Binding, bind
from daemon.leases import Held
from daemon.memory import Memory
from daemon.staging import StagingAreas
from glia.errors import BadRequest, QuotaExceeded
from glia.graph.ids import WindowId
from glia.local.messages import (
    Adopt,
    Attach,
    Done,
    Examined,
    ExaminedReply,
    Flush,
    Known,
    Lease,
    Leased,
    Match,
    Matched,
    Release,
    Reply,
    Seal,
    Sealed,
    Staging,
)

MemoryCall = Attach | Staging | Match | Known | Adopt | Lease | Examined | Release | Seal | Flush
_MAX_LEASES = 4096
_MAX_LEASED_WINDOWS = 2**16  # counting each as often as it is leased


class MemoryCalls:
    """Answers them.

    Args:
        who: the other side, as it is named to others.
    """

    def __init__(self, memory: Memory, areas: StagingAreas, who: str) -> None:
        self._memory = memory
        self._areas = areas
        self._binding: Binding | None = None
        self._staging: SharedMemory | None = None
        self._who = who
        self._leases: Held = {}
        self._num_leased = 0
        self._next_lease = 1

    async def answer(self, call: MemoryCall) -> tuple[Reply, int | None]:
        """The reply, and a descriptor that goes with it. Raises: GliaError."""
        match call:
            case Attach():
                if self._binding is not None:
                    raise BadRequest("this connection is attached already")
                self._binding = bind(call)
                self._memory.leases.add(self._who, self._leases)
            case Staging():
                return Done(call.id), self._open_staging(call.size_bytes)
            case Match() | Known() | Adopt():
                return Matched(call.id, list(await self._names(call))), None
            case Lease():
                return await self._lease(call), None
            case Examined():
                audit = await self._memory.examined(self._bound(), call.found)
                return ExaminedReply(call.id, list(audit)), None
            case Release():
                windows = self._leases.pop(call.lease, ())
                self._memory.loader.unpin(windows)
                self._num_leased -= len(windows)
            case Seal():
                return await self._seal(call), None
            case Flush():
                await self._memory.flush([WindowId(name) for name in call.windows])
        return Done(call.id), None

    def close(self) -> None:
        """The connection ended: unpin and unmap."""
        for windows in self._leases.values():
            self._memory.loader.unpin(windows)
        self._leases.clear()
        self._memory.leases.discard(self._leases)
        self._close_staging()

    def _bound(self) -> Binding:
        if self._binding is None:
            raise BadRequest("attach first")
        return self._binding

    async def _names(self, call: Match | Known | Adopt) -> list[WindowId]:
        if isinstance(call, Known):
            return await self._memory.known([WindowId(name) for name in call.windows])
        if isinstance(call, Match):
            domain = call.domain.domain() if call.domain is not None else None
            return await self._memory.match(
                self._bound(), call.tokens, exact=call.exact, domain=domain, coming=call.coming
            )
        prev = WindowId(call.prev) if call.prev is not None else None
        return await self._memory.shelves.adopt(self._bound(), prev, call.tokens)

    async def _lease(self, call: Lease) -> Leased:
        if len(self._leases) >= _MAX_LEASES:
            raise QuotaExceeded(f"a client has at most {_MAX_LEASES} leases")
        if self._num_leased + len(call.windows) > _MAX_LEASED_WINDOWS:
            raise QuotaExceeded(f"a client leases at most {_MAX_LEASED_WINDOWS:,} windows")
        names = [WindowId(name) for name in call.windows]
        pinned = await self._memory.loader.pin(self._bound(), names)
        lease = self._next_lease
        self._next_lease += 1
        self._leases[lease] = pinned.windows
        self._num_leased += len(pinned.windows)
        return Leased(call.id, lease, pinned.offsets, pinned.tiers, pinned.checks, pinned.is_late)

    async def _seal(self, call: Seal) -> Sealed:
        binding = self._bound()
        if self._staging is None:
            raise BadRequest("ask for staging first")
        names = await self._memory.sealer.seal(binding, self._staging.view, call)
        return Sealed(call.id, list(names.windows), names.num_known)

    def _open_staging(self, size_bytes: int) -> int:
        self._close_staging()
        self._staging = self._areas.open(size_bytes)
        return self._staging.fd

    def _close_staging(self) -> None:
        if self._staging is not None:
            self._areas.close(self._staging)
            self._staging = None
