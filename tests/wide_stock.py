"""Stock transformers in float64: whatever it would compute in f32 is computed in float64 too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel


class _NoFloat32(TorchFunctionMode):
    """Casts to f32 are casts to float64."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = {
            name: torch.float64 if value is torch.float32 else value
            for name, value in (kwargs or {}).items()
        }
        args = [torch.float64 if arg is torch.float32 else arg for arg in args]
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*args, **kwargs)


def wide_logits(
    model: PreTrainedModel, tokens: Sequence[int], frequencies: torch.Tensor
) -> torch.Tensor:
    """Logits [T, V] of all tokens.

    Args:
        model: of f32; changed.
        frequencies: of its rotary embedding, [D / 2], float64.
    """
    model.double()
    model.set_attn_implementation("eager")
    model.model.rotary_emb.inv_freq = frequencies
    with torch.inference_mode(), _NoFloat32():
        logits: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits
