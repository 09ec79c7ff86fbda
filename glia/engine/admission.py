"""Before prefill: find what is known of a prompt, and bring it into L0.

    for each window needed:
        in L0: nothing to do    in L1: copy    in L2: load, copy    else: compute

The usable prefix is the longest run of windows from the start: what lies behind a hole
is given back. One that a peer sent, and that does not hold, is a hole. One that a peer is
sending is waited for, a moment at each step, so that others go on meanwhile. The last token of
a prompt is always computed, so it is never asked for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from glia.engine.auditing import Auditor
from glia.engine.finding import Checks
from glia.engine.memory import TierMemory
from glia.engine.residency import Residency
from glia.engine.restore import Restored, Restorer, Wanted
from glia.engine.sequence import Sequence, Usage
from glia.errors import CapacityError, IntegrityError, NotFound, StoreError
from glia.graph.ids import WindowId
from glia.graph.profile import Profile
from glia.kv.compute import ComputeModel

_L0 = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """A matched window, the slot that stands or will stand for it, where it was."""

    window_id: WindowId
    slot: int
    resident: bool


class Admission:
    """Gives sequences their cached prefix."""

    def __init__(
        self,
        memory: TierMemory,
        model: ComputeModel,
        residency: Residency,
        profile: Profile,
        examiner: Checks,
    ) -> None:
        self._memory = memory
        self._model = model
        self._residency = residency
        self._profile = profile
        self._restorer = Restorer(memory, model, profile, examiner)
        self._auditor = Auditor(memory, profile, examiner)

    def admit(self, sequence: Sequence) -> None:
        """Give a sequence all its slots, and fill the head of its chain and usage.

        Where the tiers below refuse, nothing is cached and all is computed: `warning` says so.
        Raises: whatever the model raises; L0 is then as it was before.
        """
        try:
            started = time.perf_counter()
            names = self._find(sequence)
            sequence.spend("match", time.perf_counter() - started)
            tiers = self._restore(sequence, names)
        except (CapacityError, IntegrityError, NotFound, StoreError) as error:
            sequence.warning = f"computed anew, as its cached windows failed: {error.message}"
            tiers = self._restore(sequence, [])
        size = self._profile.block_size
        sequence.num_staged = len(tiers)
        sequence.num_computed = len(tiers) * size
        sequence.usage = _usage(tiers, size)
        self._count(sequence, tiers)

    def go_on(self, sequence: Sequence) -> None:
        """Give a sequence what came since of what peers were sending.

        Where it cannot be had, it computes on.
        Raises: as `meet`.
        """
        names, sequence.coming = sequence.coming, []
        try:
            self._add(sequence, names)
        except (CapacityError, IntegrityError, NotFound, StoreError) as error:
            sequence.warning = f"computed anew, as cached windows failed: {error.message}"

    def meet(self, sequence: Sequence) -> None:
        """Give a sequence what peers sent of what comes next, so that it goes on behind that.

        Where there is nothing, or it cannot be had, it computes on.
        Raises: whatever the model raises; its slots are then as they were.
        """
        sequence.meets_at = None
        num_before, size = len(sequence.chain), self._profile.block_size
        if sequence.num_computed != num_before * size:  # what it has is not all named
            return
        prev = sequence.chain[-1] if sequence.chain else None
        try:
            names = self._memory.adopt(prev, sequence.tokens[num_before * size : -1])
            self._add(sequence, names)
        except (CapacityError, IntegrityError, NotFound, StoreError):
            return

    def _add(self, sequence: Sequence, names: list[WindowId]) -> None:
        """Behind its chain, what can be had of these."""
        size = self._profile.block_size
        tiers = self._bring(sequence, names)
        sequence.num_staged = len(sequence.chain)
        sequence.num_computed = sequence.num_staged * size
        sequence.usage.add(_usage(tiers, size))

    def _find(self, sequence: Sequence) -> list[WindowId]:
        """What is known of its prompt; of a log that is run again nothing is to be."""
        if sequence.replay is not None:
            return []
        request = sequence.request
        return self._memory.match(sequence.tokens[:-1], exact=request.exact, domain=request.domain)

    def _bring(self, sequence: Sequence, names: list[WindowId]) -> list[int]:
        """Leading windows of these into the sequence's next slots. Returns: their tiers."""
        start = len(sequence.chain)
        resident = {n: slot for n in names if (slot := self._residency.share(n)) is not None}
        wanted = [
            Wanted(at, name, sequence.table[at])
            for at, name in enumerate(names, start)
            if name not in resident
        ]
        tiers: list[int] = []
        try:
            restored = self._restorer.restore(wanted, sequence.tokens)
            num_vetted = self._vet(sequence, [*sequence.chain, *names], start, restored)
            left = iter(restored.tiers)
            for at, name in enumerate(names, start):
                tier = _L0 if name in resident else next(left, None)
                if tier is None or at >= num_vetted:  # a hole
                    break
                sequence.table[at] = self._residency.adopt(name, sequence.table[at])
                sequence.chain.append(name)
                tiers.append(tier)
            if restored.is_late and num_vetted == start + len(names):
                sequence.coming = names[len(tiers) :]
        finally:
            self._residency.release(list(resident.values()))
        return tiers

    def admit_fork(self, sequence: Sequence) -> None:
        """Give a fork its own slots and its own copy of the tail; it shares the sealed ones."""
        num_shared = len(sequence.table)
        after = sequence.table[-1] if sequence.table else None
        sequence.table += self._residency.take(sequence.num_slots - num_shared, after)
        if sequence.tail is not None and sequence.tail.num_rows:
            position = num_shared * self._profile.block_size
            slots = sequence.table[num_shared : num_shared + 1]
            self._model.restore(sequence.tail.windows(), position, slots)

    def _restore(self, sequence: Sequence, names: list[WindowId]) -> list[int]:
        """Table and chain of the leading windows that are in L0 now, and those that come behind
        them. Returns: tiers of the first."""
        places, rest = self._places(sequence, names)
        wanted = [
            Wanted(index, place.window_id, place.slot)
            for index, place in enumerate(places)
            if not place.resident
        ]
        try:
            restored = self._restorer.restore(wanted, sequence.tokens)
            num_vetted = self._vet(sequence, names, 0, restored)
        except BaseException:
            self._model.clear([want.slot for want in wanted])
            self._residency.release([place.slot for place in places] + rest)
            raise
        num_restored = len(restored.tiers)
        usable = wanted[num_restored].index if num_restored < len(wanted) else len(places)
        sequence.coming = names[usable:] if restored.is_late and num_vetted == len(names) else []
        usable = min(usable, num_vetted)
        behind = places[usable:]  # a hole: what is resident there, this sequence will compute
        self._residency.release([place.slot for place in behind if place.resident])
        missing = self._residency.take(sum(place.resident for place in behind))
        rest = [place.slot for place in behind if not place.resident] + missing + rest
        left = iter(restored.tiers)
        tiers = [_L0 if place.resident else next(left) for place in places[:usable]]
        for place in places[:usable]:
            if not place.resident:
                self._residency.adopt(place.window_id, place.slot)
        sequence.table = [place.slot for place in places[:usable]] + rest
        sequence.chain = [place.window_id for place in places[:usable]]
        return tiers

    def _vet(
        self, sequence: Sequence, chain: list[WindowId], start: int, restored: Restored
    ) -> int:
        """How many leading windows of a chain hold, of those that were looked at."""
        started = time.perf_counter()
        num = self._auditor.vet(chain, start, sequence.tokens, restored)
        if restored.examined:
            sequence.spend("check", restored.check_s + time.perf_counter() - started)
        sequence.spend("lease", restored.lease_s)
        sequence.spend("restore", restored.copy_s)
        return num

    def _places(self, sequence: Sequence, names: list[WindowId]) -> tuple[list[_Place], list[int]]:
        """A slot for each name, and those for what is computed.

        References first, so that no slot taken for one window evicts another of these.
        """
        shared = [self._residency.share(name) for name in names]
        held = [slot for slot in shared if slot is not None]
        try:
            after = held[-1] if held else None
            fresh = self._residency.take(sequence.num_slots - len(held), after)
        except CapacityError:
            self._residency.release(held)
            raise
        left = iter(fresh)
        places = [
            _Place(name, next(left) if slot is None else slot, resident=slot is not None)
            for name, slot in zip(names, shared, strict=True)
        ]
        return places, list(left)

    def _count(self, sequence: Sequence, tiers: list[int]) -> None:
        asked = (len(sequence.tokens) - 1) // self._profile.block_size
        hits = tiers.count(_L0)
        self._residency.count_lookup(hits, asked - hits)


def _usage(tiers: list[int], block_size: int) -> Usage:
    l0, l1, l2, peers = (tiers.count(tier) * block_size for tier in range(4))
    return Usage(l0, l1, l2, peers)
