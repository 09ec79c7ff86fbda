"""L1 and L2 in one process: the TierMemory for tests and for trying an engine without gliad.

Keeps the port's promises, not gliad's speed. Names are made when they are collected, not
when they are asked for, so an engine that reuses staging too early gets wrong names here.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glia.engine.memory import Examined, Leased
from glia.errors import ArenaExhausted, NotFound
from glia.graph.block import encode_header
from glia.graph.chain import longest_chain, prefix_keys
from glia.graph.domain import Domain
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
    WindowId,
    digest,
    genesis_block,
    genesis_prefix,
    genesis_window,
    next_prefix,
)
from glia.graph.numerics import exact_with
from glia.graph.profile import Profile
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord
from glia.store.base import BlockStore, SealedWindow


@dataclass(frozen=True, slots=True)
class _Asked:
    """A seal that was asked for."""

    prev: WindowId | None
    position_start: int
    tokens: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class _Dirty:
    """A window that the store does not have yet."""

    record: WindowRecord
    key: PrefixKey


class LocalMemory:
    """A TierMemory over a store and an arena of extents of one window each.

    Args:
        arena_windows: L1's size.
        staging_windows: staging's size.

    Attributes:
        on_lease: called before each lease that comes short of what peers are sending.
        found: all that was told of windows that were looked at.
        audits: windows that are to be computed again before they are used.
    """

    def __init__(
        self,
        store: BlockStore,
        model_id: ModelId,
        profile: Profile,
        numerics_class: str,
        *,
        arena_windows: int,
        staging_windows: int,
    ) -> None:
        self._store = store
        self._model_id = model_id
        self._profile = profile
        self._class = numerics_class
        self._extent = profile.window_particle_bytes
        self._arena = np.zeros(arena_windows * self._extent, dtype=np.uint8)
        self._staging = np.zeros(staging_windows * profile.window_payload_bytes, dtype=np.uint8)
        self._free = list(range(arena_windows - 1, -1, -1))
        self._resident: OrderedDict[WindowId, int] = OrderedDict()
        self._dirty: OrderedDict[WindowId, _Dirty] = OrderedDict()
        self._pins: Counter[WindowId] = Counter()
        self._leases: dict[int, list[WindowId]] = {}
        self._num_leases = 0
        self._asked_leases: deque[list[WindowId]] = deque()
        self._asked_seals: deque[_Asked] = deque()
        self._keys: dict[WindowId, PrefixKey] = {}
        self._ahead: dict[WindowId, SealedWindow] = {}
        self._from_peers: set[WindowId] = set()
        self._unchecked: dict[WindowId, int] = {}
        self._bad: set[WindowId] = set()
        self._coming: dict[WindowId, SealedWindow] = {}
        self.on_lease: Callable[[], None] = lambda: None
        self.found: list[Examined] = []
        self.audits: set[WindowId] = set()

    @property
    def arena(self) -> NDArray[np.uint8]:
        """L1, [arena_bytes]."""
        return self._arena

    @property
    def staging(self) -> NDArray[np.uint8]:
        """[staging_bytes]."""
        return self._staging

    @property
    def num_leases(self) -> int:
        """Leases that were not given back."""
        return len(self._leases)

    def drop_l1(self) -> None:
        """Write what the store does not have, then forget all that is not leased."""
        self._write_dirty()
        for window_id in [w for w in self._resident if not self._pins[w]]:
            self._free.append(self._resident.pop(window_id))

    def forget(self, window_ids: Sequence[WindowId]) -> None:
        """Have these in no tier any more; none of them is leased."""
        self._write_dirty()
        self._store.forget(window_ids)
        for window_id in window_ids:
            extent = self._resident.pop(window_id, None)
            if extent is not None:
                self._free.append(extent)

    def bring(self, windows: Sequence[SealedWindow]) -> None:
        """Peers sent these, whether what they follow is here or not."""
        for window in windows:
            self._ahead[window.record.prev] = window

    def send(self, windows: Sequence[SealedWindow]) -> None:
        """Peers are sending these."""
        self._coming.update((window.record.window_id, window) for window in windows)

    def came(self, num: int) -> None:
        """The next ones of these are here."""
        for name in list(self._coming)[:num]:
            window = self._coming.pop(name)
            self._keep(window.record, window.prefix_key, b"".join(window.particles))
            self._from_peers.add(name)
            self.doubt([name])

    def lost(self) -> None:
        """No more of these comes."""
        self._coming.clear()

    def doubt(self, window_ids: Sequence[WindowId], *, canonical: bool = False) -> None:
        """These came from a peer: whoever leases them looks at them first."""
        self._unchecked.update(dict.fromkeys(window_ids, 2 if canonical else 1))

    def match(
        self, tokens: Sequence[int], *, exact: bool = True, domain: Domain | None = None
    ) -> list[WindowId]:
        """The longest known chain of whole windows. Raises: NotFound where a group is asked for."""
        _check_domain(domain)
        known = self._find, self._get_named, exact_with(self._class)
        chain = longest_chain(self._model_id, self._profile, tokens, *known, others=not exact)
        return [record.window_id for record in chain]

    def known(self, window_ids: Sequence[WindowId]) -> set[WindowId]:
        """Those of these windows that are whole here."""
        return {window_id for window_id in window_ids if self._get(window_id) is not None}

    def adopt(self, prev: WindowId | None, tokens: Sequence[int]) -> list[WindowId]:
        """What peers sent of these tokens, behind `prev`."""
        self._blocks_before(prev)
        at = prev or genesis_window(self._model_id, self._profile.profile_id)
        names: list[WindowId] = []
        size = self._profile.block_size
        for start in range(0, len(tokens) - size + 1, size):
            window = self._ahead.get(at)
            if window is None or window.record.tokens != tuple(tokens[start : start + size]):
                break
            at = window.record.window_id
            if self._get(at) is None:
                self._keep(window.record, window.prefix_key, b"".join(window.particles))
                self._from_peers.add(at)
                self.doubt([at])
            names.append(at)
        return names

    def lease_begin(self, window_ids: Sequence[WindowId]) -> None:
        """Ask for a lease."""
        self._asked_leases.append(list(window_ids))

    def lease_end(self) -> Leased:
        """Pin the leading windows that can be had."""
        tiers: list[int] = []
        leased: list[WindowId] = []
        asked = self._asked_leases.popleft()
        if any(name in self._coming for name in asked):
            self.on_lease()
        for window_id in asked:
            tier = self._pin(window_id)
            if tier is None:
                break
            tiers.append(tier)
            leased.append(window_id)
        self._num_leases += 1
        self._leases[self._num_leases] = leased
        starts = np.array([self._resident[w] for w in leased], dtype=np.int64) * self._extent
        sizes = np.array(self._profile.particle_sizes, dtype=np.int64)
        within = np.cumsum(sizes) - sizes + self._profile.header_bytes
        checks = tuple(self._unchecked.get(name, 0) for name in leased)
        offsets = starts[:, None] + within[None, :]
        is_late = any(name in self._coming for name in asked[len(leased) :][:1])
        return Leased(self._num_leases, offsets, tuple(tiers), checks, is_late)

    def examined(self, found: Sequence[Examined]) -> list[WindowId]:
        """Take note; what is not clean is in no match any more."""
        self.found += found
        for each in found:
            self._unchecked.pop(each.window_id, None)
            if not each.finding.is_clean:
                self._bad.add(each.window_id)
        audit = [each.window_id for each in found if not each.is_audit and each.finding.is_clean]
        return [name for name in audit if name in self.audits]

    def release(self, lease: int) -> None:
        """Give a lease back."""
        self._pins.subtract(self._leases.pop(lease))

    def seal_begin(
        self,
        prev: WindowId | None,
        position_start: int,
        tokens: Sequence[int],
        offset: int,
        num_steps: int,
        domain: Domain | None = None,
    ) -> None:
        """Ask for names."""
        _check_domain(domain)
        self._asked_seals.append(_Asked(prev, position_start, tuple(tokens), offset))

    def seal_ready(self) -> bool:
        """Whether a seal was asked for: this memory never waits."""
        return bool(self._asked_seals)

    def seal_end(self) -> list[WindowId]:
        """Names of the oldest asked seal, from what stands in staging now."""
        asked = self._asked_seals.popleft()
        size, step = self._profile.block_size, self._profile.window_payload_bytes
        names: list[WindowId] = []
        prev = asked.prev
        for index in range(len(asked.tokens) // size):
            prev = self._seal_one(
                prev,
                asked.position_start + index * size,
                asked.tokens[index * size : (index + 1) * size],
                self._staging.data[asked.offset + index * step :][:step],
            )
            names.append(prev)
        return names

    def flush(self, window_ids: Sequence[WindowId]) -> None:
        """Write what the store does not have."""
        self._write_dirty()

    # -- inside -----------------------------------------------------------------------

    def _seal_one(
        self, prev: WindowId | None, start: int, tokens: tuple[int, ...], payloads: memoryview
    ) -> WindowId:
        before = self._blocks_before(prev)
        particles: list[bytes] = []
        at = 0
        for shape, block_id in zip(self._profile.layers, before, strict=True):
            size = self._profile.payload_bytes(shape)
            header = encode_header(self._model_id, self._profile, shape, block_id, tokens)
            particles.append(header + payloads[at : at + size])
            at += size
        record = WindowRecord(
            model_id=self._model_id,
            profile_id=self._profile.profile_id,
            numerics_class=self._class,
            prev=prev or genesis_window(self._model_id, self._profile.profile_id),
            position_start=start,
            tokens=tokens,
            blocks=tuple(BlockId(digest(particle)) for particle in particles),
        )
        window_id = record.window_id
        self._keys[window_id] = next_prefix(self._key_of(prev), pack_tokens(tokens))
        self._bad.discard(window_id)  # what is computed here is true
        if self._get(window_id) is None:
            self._keep(record, self._keys[window_id], b"".join(particles))
        return window_id

    def _keep(self, record: WindowRecord, key: PrefixKey, particles: bytes) -> None:
        extent = self._take_extent()
        where = slice(extent * self._extent, (extent + 1) * self._extent)
        self._arena[where] = np.frombuffer(particles, dtype=np.uint8)
        self._resident[record.window_id] = extent
        self._dirty[record.window_id] = _Dirty(record, key)

    def _blocks_before(self, prev: WindowId | None) -> Sequence[BlockId]:
        if prev is None:
            own = self._model_id, self._profile.profile_id
            return [genesis_block(*own, shape.layer) for shape in self._profile.layers]
        record = self._get(prev)
        if record is None:
            raise NotFound("the window before these is not known here")
        return record.blocks

    def _key_of(self, window_id: WindowId | None) -> PrefixKey:
        if window_id is None:
            return genesis_prefix(self._model_id, self._profile.profile_id)
        if window_id not in self._keys:
            tokens: list[int] = []
            at: WindowId | None = window_id
            while at is not None and (record := self._get(at)) is not None:
                tokens[:0] = record.tokens
                at = record.prev if record.position_start else None
            self._keys[window_id] = prefix_keys(self._model_id, self._profile, tokens)[-1]
        return self._keys[window_id]

    def _find(self, key: PrefixKey) -> list[WindowId]:
        coming = [w for w, window in self._coming.items() if window.prefix_key == key]
        here = [w for w, dirty in self._dirty.items() if dirty.key == key]
        return coming + here + self._store.find(key)

    def _get_named(self, window_id: WindowId) -> WindowRecord | None:
        coming = self._coming.get(window_id)
        return coming.record if coming and window_id not in self._bad else self._get(window_id)

    def _get(self, window_id: WindowId) -> WindowRecord | None:
        if window_id in self._bad:
            return None
        dirty = self._dirty.get(window_id)
        return dirty.record if dirty else self._store.get(window_id)

    def _pin(self, window_id: WindowId) -> int | None:
        """Its tier, now pinned in the arena; None where it cannot be had."""
        tier = 1
        if window_id not in self._resident:
            tier = 2
            try:
                extent = self._take_extent()
            except ArenaExhausted:
                return None
            room = self._arena.data[extent * self._extent : (extent + 1) * self._extent]
            if not self._store.load([window_id], [room])[0]:
                self._free.append(extent)
                return None
            self._resident[window_id] = extent
        self._resident.move_to_end(window_id)
        self._pins[window_id] += 1
        if window_id in self._from_peers:
            self._from_peers.remove(window_id)
            tier = 3
        return tier

    def _take_extent(self) -> int:
        if not self._free:
            self._write_dirty()
            victim = next((w for w in self._resident if not self._pins[w]), None)
            if victim is None:
                raise ArenaExhausted("every window of L1 is leased")
            self._free.append(self._resident.pop(victim))
        return self._free.pop()

    def _write_dirty(self) -> None:
        while self._dirty:
            window_id, dirty = next(iter(self._dirty.items()))
            at = self._resident[window_id] * self._extent
            particles = []
            for size in self._profile.particle_sizes:
                particles.append(bytes(self._arena.data[at : at + size]))
                at += size
            self._store.put([SealedWindow(dirty.record, dirty.key, particles)])
            del self._dirty[window_id]


def _check_domain(domain: Domain | None) -> None:
    if domain is not None:
        raise NotFound("this memory is in no group")
