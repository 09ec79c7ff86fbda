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

from glia.engine.finding import Checks
from glia.engine.memory import Examined, Leased, TierMemory
from glia.engine.payloads import window_views
from glia.errors import GliaError
from glia.graph.ids import WindowId
from glia.graph.profile import Profile
from glia.kv.compute import ComputeModel

GROUP_WINDOWS = 32  # leased at once
_FROM_DISK, _FROM_PEER = 2, 3  # a window's tier, as glia/engine/memory.py has it
_CANONICAL = 2  # what is to be checked, as it has it
_NUM_AHEAD = 3  # groups under way at once
COPY_WINDOWS = 128  # copied at once, where they stand in L1 already: fewer, larger steps


@dataclass(frozen=True, slots=True)
class Wanted:
    """A window to be restored: its index in the chain, its name, the slot to fill."""

    index: int
    window_id: WindowId
    slot: int


@dataclass(slots=True)
class Restored:
    """How far it came: a tier for each leading window, and where the time went.

    Attributes:
        is_late: what follows is on its way.
        examined: what came of looking at those that a peer sent; one that did not hold ends it.
        canonical: of those that did, which are of that class.
    """

    tiers: list[int] = field(default_factory=list)
    lease_s: float = 0.0
    copy_s: float = 0.0
    check_s: float = 0.0
    is_late: bool = False
    examined: list[Examined] = field(default_factory=list)
    canonical: set[WindowId] = field(default_factory=set)

    @property
    def is_refused(self) -> bool:
        """Whether the next one must not be used."""
        return bool(self.examined) and not self.examined[-1].finding.is_clean


class Restorer:
    """Fills slots with stored windows.

    Args: examiner: looks at those that peers sent, before they are used.
    """

    def __init__(
        self, memory: TierMemory, model: ComputeModel, profile: Profile, examiner: Checks
    ) -> None:
        self._memory = memory
        self._model = model
        self._profile = profile
        self._examiner = examiner
        self._arena = torch.from_numpy(memory.arena)
        # Two groups are read while others are copied, and other clients lease too.
        room = max(1, len(memory.arena) // profile.window_particle_bytes // 5)
        self._group = min(GROUP_WINDOWS, room)
        self._copied_at_once = min(COPY_WINDOWS, room)

    def restore(self, wanted: Sequence[Wanted], tokens: Sequence[int]) -> Restored:
        """Fill the slots of the leading windows that can be had, and that hold.

        A lease that comes short is asked again by itself, when none of our own leases
        stands in its way; only if that gives nothing is it a hole. What is late is not
        waited for any longer than the memory does.

        Args: tokens: of the chain, from position 0 on.
        Raises: whatever the memory or the model raises; all leases are given back then.
        """
        done = Restored()
        alone = False
        while len(done.tiers) < len(wanted) and not (done.is_refused or done.is_late):
            before = len(done.tiers)
            self._pass(wanted[before:], tokens, 1 if alone else _NUM_AHEAD, done)
            if alone and len(done.tiers) == before:
                break
            alone = True
        return done

    def _pass(
        self, wanted: Sequence[Wanted], tokens: Sequence[int], num_ahead: int, done: Restored
    ) -> None:
        """Groups in order, `num_ahead` under way, until the end or a lease that comes short.

        Where peers send them one group is asked at a time: a window says only once that it
        came from a peer, and must not say so to a lease that is given back unused.
        """
        groups = deque(_groups(wanted, self._group))
        asked: deque[list[Wanted]] = deque()
        held = _Held()
        short, ahead = False, 1
        try:
            while asked or (groups and not short):
                while groups and not short and len(asked) < ahead:
                    self._memory.lease_begin([w.window_id for w in groups[0]])
                    asked.append(groups.popleft())
                group = asked.popleft()
                started = time.perf_counter()
                leased = self._memory.lease_end()
                done.lease_s += time.perf_counter() - started
                held.leases.append(leased.lease)
                ahead = 1 if _FROM_PEER in leased.tiers else num_ahead
                if not short:
                    held.add(group, leased)
                    short = len(leased.tiers) < len(group)
                    done.is_late = leased.is_late
                # What comes from below L1 is copied while the next is read.
                is_last = short or not (asked or groups)
                if is_last or held.num_windows >= self._copied_at_once or held.is_cold:
                    self._copy(held, tokens, done)
                    held = _Held()
                    if done.is_refused:
                        short, done.is_late = True, False
        finally:
            for lease in held.leases:
                self._memory.release(lease)
            for _ in asked:
                with suppress(GliaError):
                    self._memory.release(self._memory.lease_end().lease)

    def _copy(self, held: _Held, tokens: Sequence[int], done: Restored) -> None:
        """Copy what is held up to the first that does not hold, then give its leases back."""
        size = self._profile.block_size
        num_good = len(done.tiers)
        for run in held.runs():
            starts = run.offsets[0].tolist()
            views = window_views(self._arena, self._profile, starts, run.step, len(run.windows))
            num = self._check(run, views, tokens, done) if any(run.checks) else len(run.windows)
            started = time.perf_counter()
            if num:
                slots = [w.slot for w in run.windows[:num]]
                parts = [view[:num] for view in views]
                self._model.restore(parts, run.windows[0].index * size, slots)
            done.copy_s += time.perf_counter() - started
            num_good += num
            if num < len(run.windows):
                break
        done.tiers.extend(held.tiers[: num_good - len(done.tiers)])
        while held.leases:
            self._memory.release(held.leases.pop())

    def _check(
        self, run: _Run, views: list[torch.Tensor], tokens: Sequence[int], done: Restored
    ) -> int:
        """Look at those of a run that are to be looked at. Returns: how many lead to the first
        that does not hold."""
        started = time.perf_counter()
        size = self._profile.block_size
        chosen = [at for at, check in enumerate(run.checks) if check]
        is_canonical = [run.checks[at] == _CANONICAL for at in chosen]
        starts = [run.windows[at].index * size for at in chosen]
        said = [token for start in starts for token in tokens[start : start + size]]
        if len(chosen) < len(run.checks):
            views = [view[chosen] for view in views]
        found = self._examiner.check(said, views, is_canonical)
        done.check_s += time.perf_counter() - started
        for at, canonical, finding in zip(chosen, is_canonical, found, strict=True):
            name = run.windows[at].window_id
            done.examined.append(Examined(name, finding, is_audit=False))
            if not finding.is_clean:
                return at
            if canonical:
                done.canonical.add(name)
        return len(run.windows)


@dataclass(frozen=True, slots=True)
class _Run:
    """Windows that follow each other, at one distance in bytes in every layer.

    Attributes:
        checks: per window, as Leased has it.
    """

    windows: Sequence[Wanted]
    offsets: NDArray[np.int64]
    step: int
    checks: Sequence[int]


@dataclass(slots=True)
class _Held:
    """Leased windows that are not copied yet."""

    leases: list[int] = field(default_factory=list)
    windows: list[Wanted] = field(default_factory=list)
    offsets: list[NDArray[np.int64]] = field(default_factory=list)
    tiers: list[int] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)

    @property
    def num_windows(self) -> int:
        return len(self.windows)

    @property
    def is_cold(self) -> bool:
        """Whether some of them were not in L1, or came just now."""
        return _FROM_DISK in self.tiers or _FROM_PEER in self.tiers

    def add(self, group: Sequence[Wanted], leased: Leased) -> None:
        self.windows += group[: len(leased.tiers)]
        self.offsets.append(leased.offsets)
        self.tiers += leased.tiers
        self.checks += leased.checks

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
            part = slice(first, end)
            yield _Run(self.windows[part], offsets[part], max(0, step), self.checks[part])
            first = end


def _groups(wanted: Sequence[Wanted], most: int) -> Iterator[list[Wanted]]:
    """Cut into groups of windows that follow each other, at most so many each."""
    runs = itertools.groupby(enumerate(wanted), key=lambda pair: pair[1].index - pair[0])
    for _, pairs in runs:
        run = [window for _, window in pairs]
        for at in range(0, len(run), most):
            yield run[at : at + most]
