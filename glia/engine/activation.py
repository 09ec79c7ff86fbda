"""Activations whose elements have the same bits whatever is computed beside them.

    M rows, E elements of a row

ATen computes what does not fill a vector by another function than the rest, and cuts a
large tensor into equal parts, one a thread. Where the parts do not end with a vector
(three threads, E = 4,864), a few elements at the cuts differ by one unit in the last place.
"""

from __future__ import annotations

import torch
from torch import nn

_ONE_THREAD = 16384  # elements: below, every elementwise kernel runs on one thread
_GRAIN = 32768  # elements of a thread at least, for most kernels
_VECTORS = 64  # elements, bf16: two vectors of 512 bits, the step of ATen's loop


class RowActivation(nn.Module):
    """An elementwise module, run in parts that end with a vector."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self._activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., M, E] -> the same."""
        if _cuts_between_vectors(x.numel(), torch.get_num_threads()):
            out: torch.Tensor = self._activation(x)
            return out
        rows = max(1, _ONE_THREAD // x.shape[-1])
        return torch.cat([self._activation(part) for part in torch.split(x, rows, -2)], -2)


def _cuts_between_vectors(num_elements: int, num_threads: int) -> bool:
    """Whether threads would share so many elements without cutting a vector."""
    if num_threads == 1 or num_elements <= _ONE_THREAD:
        return True
    num_parts = min(num_threads, -(-num_elements // _GRAIN))
    return all(num_elements % (parts * _VECTORS) == 0 for parts in (num_parts, num_threads))
