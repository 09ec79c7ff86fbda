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
        weight: [N, K]; freed by the caller's dropping it once it is packed.
        bias: [N] or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.in_features, self.out_features = weight.shape[1], weight.shape[0]
        self._bias = None if bias is None else bias.detach().contiguous()
        self._packed = pack(weight)
        self._weight = weight.detach() if self._packed is None else None

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
        if self._packed is None:
            return nn.functional.linear(x, self._weight, self._bias)  # type: ignore[arg-type]
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, "none", [], ""
        )
        return out
