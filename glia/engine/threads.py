"""How many threads pay: one for steps of few rows, and one a layer for what layers share not.

A forward of few rows reads weights once, at the speed of memory, and ends each layer's
product by waiting for all threads. Measured on two cores, SmolLM2 (3.5 MB a product at
most): a decode step takes 31 ms on one thread, 36 on two, and up to 1.5 times that where
other processes want the second core. Bits do not depend on the number of threads; the
self-test at load compares one with all.

Restoring is some seven short operations a layer. Shared between threads each, they wait
for each other 420 times; a thread that does whole layers waits once. Measured, 4,096
tokens on two cores: 35 ms on one thread, 30-55 shared by operation, 19-27 by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext

import torch

_FEW_ROWS = 16
_WORTH_SHARING_BYTES = 8 << 20
_MOST_THREADS = 4  # more do not read memory faster


@contextmanager
def fitting_threads(num_rows: int, largest_weight_bytes: int) -> Iterator[None]:
    """Within: one thread for few rows of small layers, else as many as before.

    Args:
        largest_weight_bytes: of the linear layers, the output layer apart.
    """
    few = num_rows <= _FEW_ROWS and largest_weight_bytes < _WORTH_SHARING_BYTES
    with _one_thread() if few else nullcontext():
        yield


class LayerThreads:
    """Threads that share layers; each computes on itself alone."""

    def __init__(self) -> None:
        self._others = ThreadPoolExecutor(
            _MOST_THREADS - 1, "layers", initializer=torch.set_num_threads, initargs=(1,)
        )

    def run(self, work: Callable[[int, int], None], num_layers: int, num_parts: int) -> None:
        """work(layer, part) for every layer; no two of one part at once.

        Args:
            num_parts: most threads at once.
        Raises: what `work` raises, once nobody works any more.
        """
        num_parts = min(num_parts, torch.get_num_threads(), _MOST_THREADS, num_layers)

        def share(part: int) -> None:
            for layer in range(part, num_layers, num_parts):
                work(layer, part)

        others = [self._others.submit(share, part) for part in range(1, num_parts)]
        try:
            with _one_thread():
                share(0)
        finally:
            wait(others)
        for other in others:
            other.result()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
