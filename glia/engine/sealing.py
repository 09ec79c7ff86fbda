"""Full windows get their names: raw payloads into staging, gliad names them, slots adopt the names.

Asynchronous: a sequence computes on while its last windows are being named. One seal of
a sequence is under way at a time, because the next one names the window before it; the
seals of all sequences are answered in the order they were asked.

Staging is a ring of cells of one window. [first, first + count) of a seal under way is
gliad's to read; every other cell is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch

from glia.engine.memory import TierMemory
from glia.engine.payloads import all_finite, layer_starts, window_views
from glia.engine.residency import Residency
from glia.engine.sequence import Sequence
from glia.errors import CapacityError, EngineFailed, NotFound, StoreError
from glia.graph.profile import Profile


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """Windows [index, index + count) of a sequence, in cells [first, first + count)."""

    sequence: Sequence
    index: int
    first: int
    count: int


class Sealer:
    """Seals the windows of all sequences of one engine.

    Args:
        num_cells: windows that staging holds.
    """

    def __init__(
        self, memory: TierMemory, residency: Residency, profile: Profile, num_cells: int
    ) -> None:
        self._memory = memory
        self._residency = residency
        self._profile = profile
        self._num_cells = num_cells
        self._next = 0
        self._num_steps = 0
        self._under_way: deque[_UnderWay] = deque()
        self._written: set[int] = set()  # cells that are not zero for sure
        size = profile.window_payload_bytes
        staging = torch.from_numpy(memory.staging)
        self._cells = window_views(staging, profile, layer_starts(profile), size, num_cells)

    def count_step(self) -> None:
        """A decode step ran (gliad's hot bias counts them)."""
        self._num_steps += 1

    def seal(self, sequence: Sequence, windows: Several[torch.Tensor]) -> None:
        """Send the sequence's next full windows on their way to a name.

        Args:
            windows: per layer [W, S, G, 2 * D]; copied before this returns.
        Raises: EngineFailed where an element is not finite: nothing of these is sealed.
        """
        num_windows = len(windows[0])
        if not all_finite(windows):
            raise EngineFailed("the model gave K or V that is not finite")
        for at in range(0, num_windows, self._num_cells):
            part = [layer[at : at + self._num_cells] for layer in windows]
            self._begin(sequence, part)

    def collect(self) -> None:
        """Take in the names that have come."""
        while self._under_way and self._memory.seal_ready():
            self._end_oldest()

    def drain(self, sequence: Sequence | None = None) -> None:
        """Wait until nothing of this sequence (None: of any) is under way."""
        while any(sequence in (None, seal.sequence) for seal in self._under_way):
            self._end_oldest()

    def wipe(self) -> None:
        """Zero the cells that nobody reads any more."""
        busy = {cell for s in self._under_way for cell in range(s.first, s.first + s.count)}
        for cell in self._written - busy:
            for layer in self._cells:
                layer[cell] = 0
        self._written &= busy

    def _begin(self, sequence: Sequence, windows: list[torch.Tensor]) -> None:
        self.drain(sequence)
        if not sequence.keepable:
            return
        count, size = len(windows[0]), self._profile.block_size
        first = self._free_cells(count)
        for cells, layer in zip(self._cells, windows, strict=True):
            cells[first : first + count].copy_(layer)
        self._written.update(range(first, first + count))
        index = sequence.num_staged
        self._memory.seal_begin(
            sequence.chain[-1] if sequence.chain else None,
            index * size,
            sequence.tokens[index * size : (index + count) * size],
            first * self._profile.window_payload_bytes,
            self._num_steps,
            sequence.request.domain,
        )
        self._num_steps = 0
        sequence.num_staged += count
        self._under_way.append(_UnderWay(sequence, index, first, count))

    def _free_cells(self, count: int) -> int:
        """The first of `count` cells in a row that nobody reads; waits for seals if it must."""
        first = self._next if self._next + count <= self._num_cells else 0
        while any(s.first < first + count and first < s.first + s.count for s in self._under_way):
            self._end_oldest()
        self._next = first + count
        return first

    def _end_oldest(self) -> None:
        """Names come back: the slots stand for them now.

        Where windows cannot be kept (store or arena full, or the window before them is gone
        from every tier but L0), the sequence goes on without names: its answer is as good,
        the next request computes it again.
        """
        seal = self._under_way.popleft()
        sequence = seal.sequence
        try:
            names = self._memory.seal_end()
        except (CapacityError, NotFound, StoreError) as error:
            sequence.keepable = False
            sequence.warning = f"not kept from token {seal.index * self._profile.block_size} on: "
            sequence.warning += error.message
            return
        for index, name in enumerate(names, seal.index):
            sequence.table[index] = self._residency.adopt(name, sequence.table[index])
            sequence.chain.append(name)
