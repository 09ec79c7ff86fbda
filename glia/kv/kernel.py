"""Attention of packed rows over the keys up to their tile's end: two kernels.

    G kv heads, R query heads of one, rows packed queries, KL key length, D head_dim

Either gives a row the same bits whatever rows run beside it, if there are enough of them
(glia/kv/attention.py); the two do not give each other's bits, so the kernel's name is in
the schedule's. Measured on two cores with AVX512_BF16, 3 kv heads of 64, bf16, one layer:

    rows, KL          4, 640   4, 2176   4, 4224   384, 640   384, 4224
    flash, us            117       364       696       2900      18,600
    products, us         102       250       440       1600      10,300

In f32 they are equally fast, in f16 products take seconds. Scores and weights of products
are rounded to bf16, as in transformers' eager attention: the logits of SmolLM2 are as far
from f32 as stock's (0.034 of their spread; divergence 0.0011 against 0.0011).
"""

from __future__ import annotations

from typing import Protocol

import torch

KEY_TILE = 128


class Kernel(Protocol):
    """One way to compute attention.

    Attributes:
        suffix: of the schedule's name.
        reads_dense: whether keys and values are best given without gaps between heads.
    """

    suffix: str
    reads_dense: bool

    def __call__(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, first: int
    ) -> torch.Tensor:
        """Rows [first, first + rows) of the last tile, [G, rows, D] -> the same.

        Args:
            keys, values: [G, KL, D] by position, up to the tile's end.
        """


class FlashKernel:
    """torch's own fused attention.

    Args:
        num_rows: most rows a tile has.
        per_head: R; row r of a tile asks for position r // R.
    """

    suffix = ""
    reads_dense = False

    def __init__(
        self, num_rows: int, per_head: int, scale: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._per_head, self._scale = per_head, scale
        self._mask = _triangle(num_rows, 0, per_head, dtype, device)
        self._last: tuple[tuple[int, int, int], torch.Tensor] = ((0, 0, -1), self._mask)

    def __call__(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, first: int
    ) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q[None],
            keys[None],
            values[None],
            attn_mask=self._mask_at(first, q.shape[1], keys.shape[1] - KEY_TILE),
            scale=self._scale,
        )[0]

    def _mask_at(self, first: int, rows: int, start: int) -> torch.Tensor:
        """[1, 1, rows, start + KEY_TILE]; the layers of a step ask for the same one."""
        wanted = (first, rows, start)
        if self._last[0] != wanted:
            num_rows, width = self._mask.shape
            past = width - KEY_TILE
            if past < start:
                past = max(start, 2 * past)
                like = self._mask
                self._mask = _triangle(num_rows, past, self._per_head, like.dtype, like.device)
            mask = self._mask[first : first + rows, past - start : past + KEY_TILE]
            self._last = (wanted, mask[None, None])
        return self._last[1]


class ProductKernel:
    """Two products and a softmax between them; arguments as FlashKernel's."""

    suffix = ".product"
    reads_dense = True

    def __init__(
        self, num_rows: int, per_head: int, scale: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._scale = scale
        self._mask = _triangle(num_rows, 0, per_head, dtype, device)

    def __call__(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, first: int
    ) -> torch.Tensor:
        scores = torch.bmm(q * self._scale, keys.transpose(1, 2))
        scores[:, :, -KEY_TILE:].add_(self._mask[first : first + q.shape[1]])
        return torch.bmm(torch.softmax(scores, -1, out=scores), values)


def kernel_class(dtype: torch.dtype, device: torch.device) -> type[FlashKernel | ProductKernel]:
    """Products where oneDNN computes them in bf16."""
    if device.type == "cpu" and dtype == torch.bfloat16:
        try:
            if torch.ops.mkldnn._is_mkldnn_bf16_supported():
                return ProductKernel
        except (AttributeError, RuntimeError):
            pass
    return FlashKernel


def _triangle(
    rows: int, past: int, per_head: int, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """[rows, past + KEY_TILE]: 0 where key - past <= query's place in its tile, else -inf."""
    query = torch.arange(rows, device=device)[:, None] // per_head
    key = torch.arange(past + KEY_TILE, device=device)[None] - past
    mask = torch.zeros(rows, past + KEY_TILE, dtype=dtype, device=device)
    return mask.masked_fill_(key > query, float("-inf"))
