"""Linear layers whose rows have the same bits however many rows run together.

    M rows, K inputs, N outputs

Weights are packed for oneDNN where the CPU build of torch can (measured: bits of every
row equal from two rows on; a single row differs), so nothing runs on one row alone.
"""

from __future__ import annotations

import torch
from torch import nn

_PACK_ROWS_HINT = 4
_CPU = "cpu"


def pack(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight [N, K] in oneDNN's own layout, or None where this torch or CPU cannot."""
    if weight.device.type != _CPU:
        return None
    try:
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(
            weight.detach().contiguous(), _PACK_ROWS_HINT
        )
        torch.ops.mkldnn._linear_pointwise(
            weight.new_zeros(2, weight.shape[1]), packed, None, "none", [], ""
        )
    except (AttributeError, RuntimeError):
        return None
    return packed


class RowLinear(nn.Module):
    """A linear layer that never runs on a single row.

    Args:
        weight: [N, K].
        bias: [N] or None.
        pack_once: False packs for each call and keeps the weight (a test at load, which
            must not hold two copies of a model).
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, *, pack_once: bool = True
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else bias.detach().contiguous()
        self._packed = pack(weight) if pack_once else None
        self._packs_each_call = not pack_once
        self.weight = weight.detach() if self._packed is None else None

    @property
    def is_packed(self) -> bool:
        """Whether oneDNN's layout is in use."""
        return self._packed is not None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., K] -> [..., N]."""
        if x.numel() == self.in_features:
            pair = x.reshape(1, -1).expand(2, -1).contiguous()
            return self._multiply(pair)[0].reshape(*x.shape[:-1], self.out_features)
        return self._multiply(x)

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        packed = self._packed
        if self._packs_each_call and self.weight is not None:
            packed = pack(self.weight)
        if packed is None:
            return nn.functional.linear(x, self.weight, self.bias)  # type: ignore[arg-type]
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")
        return out
