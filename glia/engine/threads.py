"""One thread where waking others costs more than they save.

A forward of few rows reads weights once, at the speed of memory, and ends each layer's
product by waiting for all threads. Measured on two cores, SmolLM2 (3.5 MB a product at
most): a decode step takes 31 ms on one thread, 36 on two, and up to 1.5 times that where
other processes want the second core. Bits do not depend on the number of threads; the
self-test at load compares one with all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_FEW_ROWS = 16
_WORTH_SHARING_BYTES = 8 << 20


@contextmanager
def fitting_threads(num_rows: int, largest_weight_bytes: int) -> Iterator[None]:
    """Within: one thread for few rows of small layers, else as many as before.

    Args:
        largest_weight_bytes: of the linear layers, the output layer apart.
    """
    before = torch.get_num_threads()
    if before == 1 or num_rows > _FEW_ROWS or largest_weight_bytes >= _WORTH_SHARING_BYTES:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
