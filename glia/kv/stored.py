"""Attention over K and V as they are stored: payloads in, no pool.

    P positions before, T new tokens, H query heads, G kv heads, D head_dim, KL key length

For recomputing: what is rounded for storing is rounded before it is attended to, new
tokens as well, so that K/V follow from the stored ones alone. One layer's keys and
values are widened at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glia.kv.attention import TILE, LayerHeads, tiles_of
from glia.kv.rotary import rotate


class StoredAttention:
    """Keeps `LayerAttention` over one sequence, from position 0 on.

    Args:
        layers: with rotary tables for all positions that there will be.
        before: per layer [..., G, 2 * D], P positions, storage dtype; any strides.
        rows: per layer [T, G, 2 * D], storage dtype, of all tokens that will come; written.
        unrounded: the same in `dtype`, or None where nobody asks.
        claimed: per layer [T, G, 2 * D], as `rows`: what is attended to instead of them.
        dtype: what is computed in.
    """

    def __init__(
        self,
        layers: Sequence[LayerHeads],
        before: Sequence[torch.Tensor],
        rows: Sequence[torch.Tensor],
        unrounded: Sequence[torch.Tensor] | None,
        dtype: torch.dtype,
        claimed: Sequence[torch.Tensor] | None = None,
    ) -> None:
        self._layers = layers
        self._before = before
        self._rows = rows
        self._unrounded = unrounded
        self._read = rows if claimed is None else claimed
        self._dtype = dtype
        self._tiles = tiles_of(layers, dtype, rows[0].device)
        self._num_before = before[0].shape[:-2].numel()
        self._first = self._num_tokens = 0

    def begin(self, first: int, num_tokens: int) -> None:
        """Start a forward over tokens [first, first + num_tokens) of the rows."""
        self._first, self._num_tokens = first, num_tokens

    @property
    def num_tokens(self) -> int:
        return self._num_tokens

    def attend(self, layer: int, qkv: torch.Tensor, out: torch.Tensor) -> None:
        heads = self._layers[layer]
        num_q, num_kv = heads.num_heads, heads.kv_heads
        self._keep(layer, qkv[:, num_q : num_q + num_kv], qkv[:, num_q + num_kv :])
        position = self._num_before + self._first
        keys, values = self._widened(layer, position + self._num_tokens)
        q = qkv[:, :num_q]
        if heads.rotary is not None:
            cos, sin = heads.rotary.at(position, self._num_tokens)
            q = rotate(q, cos[:, None], sin[:, None])

        def read(length: int) -> tuple[torch.Tensor, torch.Tensor]:
            return keys[:, :length], values[:, :length]

        self._tiles[layer].attend(q, read, position, out)

    def _keep(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """K and V of the new tokens, [T, G, D] each, into their rows."""
        new = slice(self._first, self._first + self._num_tokens)
        both = torch.cat((k, v), -1).add_(0.0)  # as PooledAttention has no -0.0
        self._rows[layer][new] = both
        if self._unrounded is not None:
            self._unrounded[layer][new] = both

    def _widened(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated keys, and values, of so many positions: [G, KL, D] each, zero past them."""
        heads = self._layers[layer]
        dim = heads.head_dim
        num_rows = -(-length // TILE) * TILE
        both = torch.zeros(num_rows, heads.kv_heads, 2 * dim, dtype=self._dtype)
        before = self._before[layer]
        both[: self._num_before].view(before.shape).copy_(before)
        both[self._num_before : length] = self._read[layer][: length - self._num_before]
        keys, values = both[..., :dim], both[..., dim:]
        if heads.rotary is not None:
            cos, sin = heads.rotary.at(0, length)
            keys[:length] = rotate(keys[:length], cos[:, None], sin[:, None])
        return keys.transpose(0, 1), values.transpose(0, 1)
