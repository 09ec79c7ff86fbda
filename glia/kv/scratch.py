"""Room for what is gathered, copied or rotated: memory that a pool counts, and that it can zero."""

from __future__ import annotations

import math
import threading

import numpy as np
import torch

ALIGN_BYTES = 64  # a cache line: vectors that straddle two are slower


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on the CPU pages come from the kernel only when they are touched."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    memory = torch.from_numpy(np.zeros(num_bytes + ALIGN_BYTES, np.uint8))
    start = -memory.data_ptr() % ALIGN_BYTES
    return memory[start : start + num_bytes].view(dtype).view(shape)


class Scratch:
    """Two rooms of one size, used from the front; the next user of a room overwrites it.

    Args:
        num_elements: of each room.
    """

    def __init__(self, num_elements: int, dtype: torch.dtype, device: torch.device) -> None:
        self.data = zeros((2, num_elements), dtype, device)
        self._used = [0, 0]  # leading elements that are not zero for sure
        self._lock = threading.Lock()

    @property
    def num_elements(self) -> int:
        """Of each room."""
        return self.data.shape[1]

    def room(self, which: int, num_elements: int, part: int = 0) -> torch.Tensor:
        """The first elements of a room; or the part-th so many, for threads at once."""
        start, end = part * num_elements, (part + 1) * num_elements
        with self._lock:
            self._used[which] = max(self._used[which], end)
        return self.data[which, start:end]

    def zero(self) -> None:
        """Forget what was in it; nobody may be using it."""
        for which, used in enumerate(self._used):
            self.data[which, :used] = 0
        self._used = [0, 0]
