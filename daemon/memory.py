"""L1 and L2 of this node: the parts that the memory calls are answered by, put together.

Decisions are the table's, bytes are moved in worker threads, and between the two
everything runs on the trio thread: so there is no lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from daemon.adopting import Adopter
from daemon.arena import SharedMemory
from daemon.arrivals import Arrivals
from daemon.binding import Binding
from daemon.coming import Coming
from daemon.domains import Domains
from daemon.l1 import L1Table
from daemon.leases import Leases
from daemon.loading import Loader
from daemon.records import Records
from daemon.sealing import Sealer
from daemon.shelf import Shelves
from daemon.writer import Writer
from glia.errors import BadRequest, NotFound, StoreFull
from glia.graph.chain import longest_chain, walk
from glia.graph.domain import Domain
from glia.graph.ids import ID_BYTES, BlockId, PrefixKey, WindowId, short
from glia.graph.window import WindowRecord
from glia.local.values import FindingValue, TierValue
from glia.store.base import BlockStore

Vet = Callable[[Binding, Sequence[FindingValue]], Awaitable[Sequence[WindowId]]]


async def _nothing(_binding: Binding, _found: Sequence[FindingValue]) -> Sequence[WindowId]:
    """Where there are no peers nothing is looked at."""
    return ()


class Memory:
    """The two tiers and what works on them.

    Attributes:
        examined: takes in what an engine says of windows that came from peers.
    """

    def __init__(
        self,
        arena: SharedMemory,
        store: BlockStore,
        hot_steps: int,
        domains: Domains | None = None,
    ) -> None:
        """Args: domains: of the groups that this node is in; None: it is in none."""
        self.arena = arena
        self.store = store
        self.table = L1Table(arena.size_bytes, hot_steps)
        self.domains = domains or Domains()
        self.records = Records(self.table, store, self.domains)
        self.hidden = self.records.hidden
        self.leases = Leases()
        self.writer = Writer(self.table, arena.view, store)
        self.arrivals = Arrivals()
        self.coming = Coming()
        self.loader = Loader(
            arena, self.table, store, self.records, self.writer, self.arrivals, self.coming
        )
        self.adopter = Adopter(arena, self.table, store, self.records, self.writer, self.arrivals)
        self.shelves = Shelves(arena, self.table, self.records, self.writer, self.arrivals)
        self.sealer = Sealer(arena, self.table, self.records, self.writer)
        self.examined: Vet = _nothing

    async def match(
        self,
        binding: Binding,
        tokens: Sequence[int],
        *,
        exact: bool = True,
        domain: Domain | None = None,
        coming: bool = False,
    ) -> list[WindowId]:
        """The longest chain of whole windows.

        Args:
            exact: of its exact classes only.
            domain: that begins in these tokens.
            coming: also of windows that are on their way.
        Raises: NotFound where its group is none of this node's.
        """
        found = await self.longest(binding, tokens, exact=exact, domain=domain, coming=coming)
        return [record.window_id for record in found]

    async def longest(
        self,
        binding: Binding,
        tokens: Sequence[int],
        *,
        exact: bool = True,
        domain: Domain | None = None,
        coming: bool = False,
    ) -> list[WindowRecord]:
        """The same, as records."""
        look = partial(
            longest_chain,
            binding.model_id,
            binding.profile,
            tokens,
            self._find if coming else self.records.find,
            self._get if coming else self.records.get,
            binding.exact_classes,
            others=not exact and binding.takes_others,
            salt=self.domains.salt(domain) if domain is not None else None,
        )
        return await trio.to_thread.run_sync(look)

    def _find(self, key: PrefixKey) -> list[WindowId]:
        """What comes first: a window that is not among that any more is here by now."""
        return [*self.coming.find(key), *self.records.find(key)]

    def _get(self, window_id: WindowId) -> WindowRecord | None:
        record = self.coming.get(window_id)
        return record if record and window_id not in self.hidden else self.records.get(window_id)

    async def is_exact(self, binding: Binding, tip: WindowId) -> bool:
        """Whether all windows of the chain that ends in `tip` are of the binding's exact
        classes."""
        return await trio.to_thread.run_sync(self._is_exact, binding, tip)

    def _is_exact(self, binding: Binding, tip: WindowId) -> bool:
        """What is not here any more is not said to be exact."""
        name = tip
        while name != binding.root:
            record = self.records.get(name)
            if record is None or record.numerics_class not in binding.exact_classes:
                return False
            name = record.before
        return True

    async def stored(self, records: Sequence[WindowRecord]) -> set[BlockId]:
        """Blocks of windows that are not here, which L2 has all the same.

        That is rare, and looking takes time: a window without its first and last block is
        taken to have none.
        """
        return await trio.to_thread.run_sync(self._stored, records)

    def _stored(self, records: Sequence[WindowRecord]) -> set[BlockId]:
        has = self.store.has_block
        likely = [r for r in records if has(r.blocks[0]) or has(r.blocks[-1])]
        return {name for record in likely for name in record.blocks if has(name)}

    async def known(self, window_ids: Sequence[WindowId]) -> list[WindowId]:
        """Those of these windows that are whole in L1 or L2."""
        get = self.records.get_now
        return await trio.to_thread.run_sync(
            lambda: [name for name in window_ids if get(name) is not None]
        )

    async def flush(self, window_ids: Sequence[WindowId]) -> None:
        """Return when these windows are durable.

        What L2 held once and has dropped or set aside since is written again from L1.

        Raises: StoreFull, StoreBroken; NotFound for a window that is nowhere.
        """
        await self.writer.flush(window_ids)
        lost = await self._not_stored(window_ids)
        for name in lost:
            if name not in self.table or name in self.hidden:
                raise NotFound(f"window {short(name)} is not known here")
        for name in lost:
            self.table.mark_dirty(name)
            self.writer.add(name)
        if lost:
            await self.writer.flush(lost)
            if await self._not_stored(window_ids):
                raise StoreFull(
                    "L2 cannot hold all windows of this conversation at once",
                    hint="raise [l2] size in glia.toml",
                )

    async def _not_stored(self, window_ids: Sequence[WindowId]) -> list[WindowId]:
        records = await trio.to_thread.run_sync(lambda: list(map(self.store.get, window_ids)))
        return [name for name, record in zip(window_ids, records, strict=True) if record is None]

    async def chain(self, tip: WindowId) -> list[WindowRecord]:
        """The windows from genesis to `tip`. Raises: NotFound, MalformedParticle."""
        return await trio.to_thread.run_sync(walk, tip, self.records.get_now)

    async def named(self, start: bytes) -> WindowId:
        """The window whose name begins so, looked for where it is not all of it.

        Raises: NotFound, BadRequest where several are here.
        """
        if len(start) == ID_BYTES:
            return WindowId(start)
        found = {name for name in self.table.names() if name.startswith(start)}
        stored = await trio.to_thread.run_sync(
            lambda: {name for name in self.store.windows() if name.startswith(start)}
        )
        found |= stored
        if len(found) > 1:
            raise BadRequest(f"{len(found)} windows here begin with {start.hex()}", hint="say more")
        if not found:
            raise NotFound(f"no window here begins with {start.hex()}", hint="gliad links")
        return found.pop()

    async def evict(self) -> tuple[int, int]:
        """Drop from L1 all that is not in use, written first. Returns freed bytes and windows."""
        await self.writer.flush_all()
        return self.table.evict()

    async def tiers(self) -> dict[str, TierValue]:
        """L1 and L2 as `status` shows them."""
        stats = await trio.to_thread.run_sync(self.store.stats)
        l1 = TierValue(
            used_bytes=self.table.used_bytes,
            cap_bytes=self.table.total_bytes,
            windows=len(self.table),
            hits=self.loader.num_hits,
            misses=self.loader.num_misses,
            evictions=self.table.num_evicted,
        )
        l2 = TierValue(
            used_bytes=stats.used_bytes,
            cap_bytes=stats.cap_bytes,
            windows=stats.num_windows,
            hits=stats.num_hits,
            misses=stats.num_misses,
            evictions=stats.num_evicted,
            quarantined=stats.num_quarantined,
        )
        return {"l1": l1, "l2": l2}
