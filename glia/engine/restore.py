"""L1 and below to L0: lease windows in groups, copy them into slots, give the leases back.

The next group is asked for before this one is copied, so that gliad reads and verifies
while the engine copies. A group is small against L1, so a prompt of any length passes
through an L1 of any size.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from glia.engine.memory import Leased, TierMemory
from glia.engine.payloads import window_views
from glia.errors import GliaError
from glia.graph.ids import WindowId
from glia.graph.profile import Profile
from glia.kv.compute import ComputeModel

GROUP_WINDOWS = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """A window to be restored: its index in the chain, its name, the slot to fill."""

    index: int
    window_id: WindowId
    slot: int


@dataclass(slots=True)
class Restored:
    """How far it came: a tier for each leading window, and where the time went."""

    tiers: list[int] = field(default_factory=list)
    lease_s: float = 0.0
    copy_s: float = 0.0


class Restorer:
    """Fills slots with stored windows."""

    def __init__(self, memory: TierMemory, model: ComputeModel, profile: Profile) -> None:
        self._memory = memory
        self._model = model
        self._profile = profile
        self._arena = torch.from_numpy(memory.arena)
        # Two groups are under way at once, and other clients lease too.
        room = len(memory.arena) // profile.window_particle_bytes // 4
        self._group = max(1, min(GROUP_WINDOWS, room))

    def restore(self, wanted: Sequence[Wanted]) -> Restored:
        """Fill the slots of the leading windows that can be had.

        A lease that comes short is asked again by itself, when none of our own leases
        stands in its way; only if that gives nothing is it a hole.

        Raises: whatever the memory or the model raises; all leases are given back then.
        """
        done = Restored()
        alone = False
        while len(done.tiers) < len(wanted):
            before = len(done.tiers)
            self._pass(wanted[before:], 1 if alone else 2, done)
            if alone and len(done.tiers) == before:
                break
            alone = True
        return done

    def _pass(self, wanted: Sequence[Wanted], num_ahead: int, done: Restored) -> None:
        """Groups in order, `num_ahead` under way, until the end or a lease that comes short."""
        groups = list(_groups(wanted, self._group))
        asked: deque[list[Wanted]] = deque()
        short = False
        try:
            while asked or (groups and not short):
                while groups and not short and len(asked) < num_ahead:
                    group = groups.pop(0)
                    self._memory.lease_begin([w.window_id for w in group])
                    asked.append(group)
                group = asked.popleft()
                started = time.perf_counter()
                leased = self._memory.lease_end()
                done.lease_s += time.perf_counter() - started
                self._take(group, leased, done, skip=short)
                short = short or len(leased.tiers) < len(group)
        except BaseException:
            for _ in asked:
                with suppress(GliaError):
                    self._memory.release(self._memory.lease_end().lease)
            raise

    def _take(self, group: list[Wanted], leased: Leased, done: Restored, *, skip: bool) -> None:
        started = time.perf_counter()
        try:
            if not skip:
                self._copy(group[: len(leased.tiers)], leased.offsets)
                done.tiers.extend(leased.tiers)
        finally:
            self._memory.release(leased.lease)
        done.copy_s += time.perf_counter() - started

    def _copy(self, group: Sequence[Wanted], offsets: NDArray[np.int64]) -> None:
        size = self._profile.block_size
        for first, count, step in _even_runs(offsets[: len(group)]):
            starts = offsets[first].tolist()
            views = window_views(self._arena, self._profile, starts, step, count)
            slots = [w.slot for w in group[first : first + count]]
            self._model.restore(views, group[first].index * size, slots)


def _groups(wanted: Sequence[Wanted], most: int) -> Iterator[list[Wanted]]:
    """Cut into groups of windows that follow each other, at most so many each."""
    runs = itertools.groupby(enumerate(wanted), key=lambda pair: pair[1].index - pair[0])
    for _, pairs in runs:
        run = [window for _, window in pairs]
        for at in range(0, len(run), most):
            yield run[at : at + most]


def _even_runs(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Cut windows into runs of one distance in every layer: (first, count, distance in bytes)."""
    first, num_windows = 0, len(offsets)
    while first < num_windows:
        count, step = 1, 0
        if first + 1 < num_windows:
            steps = np.diff(offsets[first:], axis=0)
            step = int(steps[0, 0])
            uneven = np.flatnonzero((steps != step).any(axis=1))
            count = 1 + (int(uneven[0]) if len(uneven) else len(steps))
            if count == 1 or step < 0:
                count, step = 1, 0
        yield first, count, step
        first += count
