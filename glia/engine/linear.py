"""Linear layers whose rows have the same bits however many rows run together.

    M rows, K inputs, N outputs

Rows run in multiples of four: fewer, or a rest of one to three, go through kernels that
sum in another order (measured: f32 differs for M = 2, 3 on one thread, up to 11 on two).
bf16 weights are packed for oneDNN where the CPU build of torch can, with the bits of the
plain product and half its time on four rows. f32 stays plain: packed, it sums in another
order than stock transformers, and logits of SmolLM2 were 1.1e-4 away instead of 0.7e-4.
"""

from __future__ import annotations

import torch
from torch import nn

ROWS = 4
_CPU = "cpu"


def pack(weight: torch.Tensor) -> torch.Tensor | None:
    """The weight [N, K] in oneDNN's own layout, or None where it is not packed."""
    if weight.device.type != _CPU or weight.dtype == torch.float32:
        return None
    try:
        packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(
            weight.detach().contiguous(), ROWS
        )
        torch.ops.mkldnn._linear_pointwise(
            weight.new_zeros(ROWS, weight.shape[1]), packed, None, "none", [], ""
        )
    except (AttributeError, RuntimeError):
        return None
    return packed


def pad_rows(x: torch.Tensor) -> torch.Tensor:
    """x [M, ...] with its last row repeated up to a multiple of four rows."""
    missing = -x.shape[0] % ROWS
    return torch.cat((x, x[-1:].expand(missing, *x.shape[1:]))) if missing else x


class RowLinear(nn.Module):
    """A linear layer that runs on multiples of four rows.

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
        if x.dim() == 2 and x.shape[0] % ROWS == 0:
            return self._multiply(x)
        rows = x.reshape(-1, self.in_features)
        num_rows = rows.shape[0]
        out = self._multiply(pad_rows(rows))[:num_rows]
        return out.view(*x.shape[:-1], self.out_features)

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        packed = self._packed
        if self._packs_each_call and self.weight is not None:
            packed = pack(self.weight)
        if packed is None:
            return nn.functional.linear(x, self.weight, self.bias)  # type: ignore[arg-type]
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")
        return out
