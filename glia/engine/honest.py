"""Honest K and V of one passage, computed in the ways that may differ.

W windows, S block_size, T tokens, G kv heads, D head_dim
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from glia.engine.loaded import LoadedModel
from glia.kv.compute import Piece

Windows = list[torch.Tensor]  # per layer [W, S, G, 2 * D], storage dtype
WAYS = ("whole", "cut", "decoded", "other threads")
_CUT = 37  # tokens of a piece: no multiple of a window


def windows_by(model: LoadedModel, tokens: Sequence[int], way: str) -> Windows:
    """K and V of whole windows. Args: way: one of WAYS."""
    if way != "other threads":
        return _run(model, tokens, _lengths(way, len(tokens), model.block_size))
    with _other_threads():
        return _run(model, tokens, [len(tokens)])


def _lengths(way: str, num_tokens: int, block_size: int) -> list[int]:
    if way == "decoded":
        return [block_size] + [1] * (num_tokens - block_size)
    piece = _CUT if way == "cut" else num_tokens
    return [min(piece, num_tokens - at) for at in range(0, num_tokens, piece)]


def _run(model: LoadedModel, tokens: Sequence[int], lengths: Sequence[int]) -> Windows:
    size = model.block_size
    raw = model.new_raw(len(tokens))
    at = 0
    for length in lengths:
        end = at + length
        table = range(-(-end // size))
        model.forward([Piece(tokens[at:end], at, table, [rows[at:end] for rows in raw])])
        at = end
    return [rows.view(-1, size, *rows.shape[1:]) for rows in raw]


@contextmanager
def _other_threads() -> Iterator[None]:
    num = torch.get_num_threads()
    torch.set_num_threads(1 if num > 1 else 2)
    try:
        yield
    finally:
        torch.set_num_threads(num)
