"""L0: the pool of slots. A slot holds one window in all layers, K rotated for its position.

    N slots, S block_size, G kv heads, D head_dim, T new tokens, W windows, KL key length

Row r of a layer's tensors belongs to slot r // S. Rows outside a sequence are finite
and masked; nothing that is computed depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from glia.errors import PoolExhausted
from glia.graph.profile import LayerShape
from glia.kv.kernel import KEY_TILE
from glia.kv.rotary import Rotary, rotate_in_place
from glia.kv.scratch import ALIGN_BYTES, Scratch, zeros

_MIN_SLOTS = 4
_MAX_RUNS = 16  # copied one by one; above some 35, one gather of all slots is faster


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Where the tokens of one forward stand in the pool. Made by `Pool.dispatch`.

    Attributes:
        position, num_tokens: the new tokens.
        new_rows: their rows, [T] or a slice.
        runs: (first row, number of rows) of slots that follow each other, for at least KL
            positions; none where there are too many of them.
        gather: [ceil(KL / S)] slots of the table, where there are; else None.
        key_length: KL, keys that the last tile attends to (masked ones included).
    """

    position: int
    num_tokens: int
    new_rows: slice | torch.Tensor
    runs: Sequence[tuple[int, int]]
    gather: torch.Tensor | None
    key_length: int


def token_bytes(shapes: Sequence[LayerShape], dtype: torch.dtype) -> int:
    """Bytes of one token's K and V in all layers of the pool."""
    return sum(2 * s.kv_heads * s.head_dim for s in shapes) * dtype.itemsize


def num_slots_for(
    cap_bytes: int,
    shapes: Sequence[LayerShape],
    block_size: int,
    dtype: torch.dtype,
    context_tokens: int,
) -> int:
    """How many slots a pool of at most `cap_bytes` has, gather scratch and padding included.

    Raises: PoolExhausted when no sequence of any use would fit.
    """
    per_token = token_bytes(shapes, dtype)
    scratch_per_token = max(token_bytes([s], dtype) for s in shapes)
    pad = KEY_TILE * per_token + (KEY_TILE + block_size) * scratch_per_token
    pad += ALIGN_BYTES * (2 * len(shapes) + 1)
    room = cap_bytes - pad
    small = room // (block_size * (per_token + scratch_per_token))
    large = (room - context_tokens * scratch_per_token) // (block_size * per_token)
    num_slots = max(small, large)
    if num_slots < _MIN_SLOTS:
        raise PoolExhausted(
            f"L0 of {cap_bytes:,} bytes holds {max(0, num_slots)} windows of this model",
            hint=f"set [l0] size to at least {pad + 64 * block_size * per_token}",
        )
    return num_slots


class Pool:
    """K and V of every slot, per layer [G, N * S + 128, D], compute dtype.

    Args:
        num_slots: N.
        context_tokens: longest sequence, for the gather scratch.
    """

    def __init__(
        self,
        shapes: Sequence[LayerShape],
        block_size: int,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
        context_tokens: int,
    ) -> None:
        self.block_size = block_size
        self.num_slots = num_slots
        self.dtype = dtype
        self.device = device
        rows = num_slots * block_size + KEY_TILE
        sizes = [(s.kv_heads, rows, s.head_dim) for s in shapes]
        self._keys = [zeros(size, dtype, device) for size in sizes]
        self._values = [zeros(size, dtype, device) for size in sizes]
        longest = min(context_tokens, num_slots * block_size) + KEY_TILE + block_size
        width = max(s.kv_heads * s.head_dim for s in shapes)
        self._width = width
        self._scratch = Scratch(longest * width, dtype, device)
        self._is_written = bytearray(num_slots)

    @property
    def slot_bytes(self) -> int:
        """One window in all layers."""
        per_row = sum(t.shape[0] * t.shape[2] for t in (*self._keys, *self._values))
        return per_row * self.block_size * self.dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Everything allocated."""
        tensors = (*self._keys, *self._values, self._scratch.data)
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    def dispatch(self, position: int, num_tokens: int, table: Sequence[int]) -> Dispatch:
        """Resolve a block table once for all layers.

        Args:
            table: slot of each window up to the last new token.
        """
        size = self.block_size
        end = position + num_tokens
        slots = list(table[: -(-end // size)])
        key_length = -(-end // KEY_TILE) * KEY_TILE
        new = slots[position // size :]
        self._mark(new)
        new_rows: slice | torch.Tensor
        if _consecutive(new):
            start = new[0] * size + position % size
            new_rows = slice(start, start + num_tokens)
        else:
            base = torch.tensor(new, device=self.device)[:, None] * size
            rows = (base + torch.arange(size, device=self.device)).flatten()
            new_rows = rows[position % size : position % size + num_tokens]
        padding = -(-key_length // size) - len(slots)
        runs = _runs(slots)
        if len(runs) > _MAX_RUNS:
            gather = torch.tensor(slots + slots[-1:] * padding, device=self.device)
            return Dispatch(position, num_tokens, new_rows, (), gather, key_length)
        runs[-1] = (runs[-1][0], runs[-1][1] + padding)  # rows that are masked, whosever
        in_rows = [(first * size, count * size) for first, count in runs]
        return Dispatch(position, num_tokens, new_rows, in_rows, None, key_length)

    def write(self, layer: int, dispatch: Dispatch, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store the new tokens' rotated K and V, [T, G, D] each."""
        self._keys[layer][:, dispatch.new_rows] = k.transpose(0, 1)
        self._values[layer][:, dispatch.new_rows] = v.transpose(0, 1)

    def view(
        self, layer: int, dispatch: Dispatch, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotated K and V of the first `length` positions, [G, length, D] each; what is past
        the sequence is masked.

        Without a copy where the slots follow each other, else as `dense` gives them.
        """
        if len(dispatch.runs) != 1:
            return self.dense(layer, dispatch, length)
        first = dispatch.runs[0][0]
        rows = slice(first, first + length)
        return self._keys[layer][:, rows], self._values[layer][:, rows]

    def dense(
        self, layer: int, dispatch: Dispatch, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same, without gaps between heads, in scratch that the next call overwrites."""
        return (
            self._dense(self._keys[layer], dispatch, length, 0),
            self._dense(self._values[layer], dispatch, length, 1),
        )

    def _dense(
        self, tensor: torch.Tensor, dispatch: Dispatch, length: int, which: int
    ) -> torch.Tensor:
        num_heads, _, dim = tensor.shape
        if dispatch.gather is None:
            out = self._scratch.room(which, num_heads * length * dim).view(num_heads, length, dim)
            at = 0
            for first, count in dispatch.runs:
                count = min(count, length - at)
                out[:, at : at + count].copy_(tensor[:, first : first + count])
                at += count
            return out
        slots = dispatch.gather[: -(-length // self.block_size)]
        count = slots.shape[0] * self.block_size
        out = self._scratch.room(which, num_heads * count * dim)
        by_slot = self._by_slot(tensor).flatten(2)
        gathered = out.view(num_heads, slots.shape[0], self.block_size * dim)
        for head in range(num_heads):  # along the first dimension rows are copied whole
            torch.index_select(by_slot[head], 0, slots, out=gathered[head])
        return out.view(num_heads, count, dim)[:, :length]

    def _by_slot(self, tensor: torch.Tensor) -> torch.Tensor:
        num_heads, _, dim = tensor.shape
        used = tensor[:, : self.num_slots * self.block_size]
        return used.view(num_heads, self.num_slots, self.block_size, dim)

    def num_parts(self, num_tokens: int) -> int:
        """How many layers may load so many tokens at once, each by a thread of its own."""
        return max(1, self._scratch.num_elements // (num_tokens * self._width))

    def load(
        self,
        layer: int,
        payload: torch.Tensor,
        slots: Sequence[int],
        rotary: Rotary | None,
        position: int,
        part: int = 0,
    ) -> None:
        """Store W windows, rotated as prefill rotates.

        Args:
            payload: [W, S, G, 2 * D], storage dtype, any strides; K unrotated, then V.
            slots: W slots.
            rotary: None for a layer without positions.
            position: of the first window's first token.
            part: which of `num_parts` this is.
        """
        num_windows, size, num_heads, width = payload.shape
        num_tokens, dim = num_windows * size, width // 2
        self._mark(slots)
        by_head = payload.permute(2, 0, 1, 3)
        cos_sin = None if rotary is None else rotary.at(position, num_tokens)
        if _consecutive(slots):
            rows = slice(slots[0] * size, slots[0] * size + num_tokens)
            keys, values = self._keys[layer][:, rows], self._values[layer][:, rows]
            values.view(by_head[..., dim:].shape).copy_(by_head[..., dim:])
            self._rotate_into(keys, by_head[..., :dim], cos_sin, part)
            return
        index = torch.tensor(list(slots), device=self.device)
        self._by_slot(self._values[layer])[:, index] = by_head[..., dim:].to(
            self.device, self.dtype
        )
        keys = self._scratch.room(1, num_heads * num_tokens * dim, part)
        keys = keys.view(num_heads, num_tokens, dim)
        self._rotate_into(keys, by_head[..., :dim], cos_sin, part)
        self._by_slot(self._keys[layer])[:, index] = keys.view(by_head[..., :dim].shape)

    def _rotate_into(
        self,
        keys: torch.Tensor,
        source: torch.Tensor,
        cos_sin: tuple[torch.Tensor, torch.Tensor] | None,
        part: int,
    ) -> None:
        """keys [G, W * S, D] become source [G, W, S, D], rotated."""
        keys.view(source.shape).copy_(source)
        if cos_sin is not None:
            swapped = self._scratch.room(0, keys.numel(), part).view(keys.shape)
            rotate_in_place(keys, swapped, *cos_sin)

    def zero_slot(self, slot: int) -> None:
        """Forget what a slot holds, in all layers. One that was never written is not touched."""
        if not self._is_written[slot]:
            return
        size = self.block_size
        for tensor in (*self._keys, *self._values):
            tensor[:, slot * size : (slot + 1) * size] = 0
        self._is_written[slot] = 0

    def zero_scratch(self) -> None:
        """Forget what was gathered and rotated; between two dispatches nobody reads it."""
        self._scratch.zero()

    def _mark(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._is_written[slot] = 1


def _runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    """(first, count) of slots that follow each other."""
    numbers = np.asarray(slots)
    starts = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()]
    ends = [*starts[1:], len(slots)]
    return [(slots[start], end - start) for start, end in zip(starts, ends, strict=True)]


def _consecutive(slots: Sequence[int]) -> bool:
    first = slots[0]
    return list(slots) == list(range(first, first + len(slots)))
