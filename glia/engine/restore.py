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

GROUP_WINDOWS = 32  # leased at once
_FROM_DISK = 2  # a window's tier, as glia/engine/memory.py has it
COPY_WINDOWS = 128  # copied at once, where they stand in L1 already: fewer, larger steps


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
        # Two groups are read while others are copied, and other clients lease too.
        room = max(1, len(memory.arena) // profile.window_particle_bytes // 5)
        self._group = min(GROUP_WINDOWS, room)
        self._copied_at_once = min(COPY_WINDOWS, room)

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
            self._pass(wanted[before:], 1 if alone else 3, done)
            if alone and len(done.tiers) == before:
                break
            alone = True
        return done

    def _pass(self, wanted: Sequence[Wanted], num_ahead: int, done: Restored) -> None:
        """Groups in order, `num_ahead` under way, until the end or a lease that comes short."""
        groups = deque(_groups(wanted, self._group))
        asked: deque[list[Wanted]] = deque()
        held = _Held()
        short = False
        try:
            while asked or (groups and not short):
                while groups and not short and len(asked) < num_ahead:
                    self._memory.lease_begin([w.window_id for w in groups[0]])
                    asked.append(groups.popleft())
                group = asked.popleft()
                started = time.perf_counter()
                leased = self._memory.lease_end()
                done.lease_s += time.perf_counter() - started
                held.leases.append(leased.lease)
                if not short:
                    held.add(group, leased)
                    short = len(leased.tiers) < len(group)
                # What comes from below L1 is copied while the next is read.
                is_last = short or not (asked or groups)
                if is_last or held.num_windows >= self._copied_at_once or held.is_cold:
                    self._copy(held, done)
                    held = _Held()
        finally:
            for lease in held.leases:
                self._memory.release(lease)
            for _ in asked:
                with suppress(GliaError):
                    self._memory.release(self._memory.lease_end().lease)

    def _copy(self, held: _Held, done: Restored) -> None:
        """Copy what is held, then give its leases back."""
        started = time.perf_counter()
        size = self._profile.block_size
        for run in held.runs():
            starts = run.offsets[0].tolist()
            views = window_views(self._arena, self._profile, starts, run.step, len(run.windows))
            slots = [w.slot for w in run.windows]
            self._model.restore(views, run.windows[0].index * size, slots)
        done.tiers.extend(held.tiers)
        while held.leases:
            self._memory.release(held.leases.pop())
        done.copy_s += time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class _Run:
    """Windows that follow each other, at one distance in bytes in every layer."""

    windows: Sequence[Wanted]
    offsets: NDArray[np.int64]
    step: int


@dataclass(slots=True)
class _Held:
    """Leased windows that are not copied yet."""

    leases: list[int] = field(default_factory=list)
    windows: list[Wanted] = field(default_factory=list)
    offsets: list[NDArray[np.int64]] = field(default_factory=list)
    tiers: list[int] = field(default_factory=list)

    @property
    def num_windows(self) -> int:
        return len(self.windows)

    @property
    def is_cold(self) -> bool:
        """Whether some of them were not in L1."""
        return _FROM_DISK in self.tiers

    def add(self, group: Sequence[Wanted], leased: Leased) -> None:
        self.windows += group[: len(leased.tiers)]
        self.offsets.append(leased.offsets)
        self.tiers += leased.tiers

    def runs(self) -> Iterator[_Run]:
        if not self.windows:
            return
        offsets = np.concatenate(self.offsets)
        steps = np.diff(offsets, axis=0)
        follows = np.diff([w.index for w in self.windows]) == 1
        even = (steps == steps[:, :1]).all(axis=1) & (steps[:, 0] > 0) & follows
        first = 0
        while first < len(self.windows):
            end = first + 1
            step = int(steps[first, 0]) if first < len(steps) else 0
            while end < len(self.windows) and even[end - 1] and steps[end - 1, 0] == step:
                end += 1
            yield _Run(self.windows[first:end], offsets[first:end], max(0, step))
            first = end


def _groups(wanted: Sequence[Wanted], most: int) -> Iterator[list[Wanted]]:
    """Cut into groups of windows that follow each other, at most so many each."""
    runs = itertools.groupby(enumerate(wanted), key=lambda pair: pair[1].index - pair[0])
    for _, pairs in runs:
        run = [window for _, window in pairs]
        for at in range(0, len(run), most):
            yield run[at : at + most]
