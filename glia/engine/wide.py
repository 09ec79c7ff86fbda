"""A transformers module computed in float64, whatever its weights are stored in.

    M rows, K inputs, N outputs

Every weight keeps the value that its file has: float64 holds each bf16, f16 and f32.
A linear layer either keeps its weight in float64 (eight bytes an element), or keeps it as
the file has it, mapped, and widens some rows of it at a time for every product.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from glia.engine.linear import pad_rows
from glia.errors import ModelRefused

WIDE = torch.float64
_AT_ONCE = 1 << 21  # elements widened together: 16 MiB


class WideLinear(nn.Module):
    """A linear layer in float64, on multiples of four rows.

    Args:
        keep: whether the weight is kept in float64.
    """

    def __init__(self, linear: nn.Linear, *, keep: bool) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.weight = weight.to(WIDE) if keep else weight
        self.bias = None if linear.bias is None else linear.bias.detach().to(WIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., K] -> [..., N]."""
        num_outputs, num_inputs = self.weight.shape
        rows = x.reshape(-1, num_inputs)
        padded = pad_rows(rows)
        if self.weight.dtype == WIDE:
            out = nn.functional.linear(padded, self.weight, self.bias)
        else:
            out = padded.new_empty(len(padded), num_outputs)
            count = max(1, _AT_ONCE // num_inputs)
            for first in range(0, num_outputs, count):
                part = slice(first, first + count)
                bias = None if self.bias is None else self.bias[part]
                out[:, part] = nn.functional.linear(padded, self.weight[part].to(WIDE), bias)
        return out[: len(rows)].view(*x.shape[:-1], num_outputs)


class WideEmbedding(nn.Module):
    """Rows of the embedding, widened as they are looked up."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.weight.detach()
        self._scale = float(getattr(embedding, "scalar_embed_scale", 1.0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[...] -> [..., E]."""
        return nn.functional.embedding(tokens, self.weight).to(WIDE) * self._scale


class WideNorm(nn.Module):
    """RMS norm in float64; transformers' own computes in f32 whatever comes in."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., E] -> the same."""
        return nn.functional.rms_norm(x, self.weight.shape, self.weight, self._eps)


def kept_bytes(model: PreTrainedModel) -> int:
    """What the linear layers' weights take in float64."""
    linears = [module for module in model.modules() if type(module) is nn.Linear]
    return sum(linear.weight.numel() for linear in linears) * WIDE.itemsize


def widen(model: PreTrainedModel, *, keep: bool) -> None:
    """Replace every module that has weights by one that computes in float64.

    Args:
        keep: whether linear layers keep their weights in float64.
    Raises: ModelRefused for a module of a kind that is not known here.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            wide = _wide(child, model.config.model_type, keep=keep)
            if wide is not None:
                setattr(parent, name, wide)
            elif next(child.parameters(recurse=False), None) is not None:
                raise ModelRefused(f"its {type(child).__name__} is not known in float64")


def _wide(module: nn.Module, model_type: str, *, keep: bool) -> nn.Module | None:
    if type(module) is nn.Linear:
        return WideLinear(module, keep=keep)
    if isinstance(module, nn.Embedding):
        return WideEmbedding(module)
    if type(module) is nn.LayerNorm:
        return module.to(WIDE)
    if type(module).__name__.endswith("RMSNorm"):
        weight: torch.Tensor = module.weight.detach().to(WIDE)  # type: ignore[operator]
        if model_type == "gemma":  # its weights are distances from one
            return WideNorm(weight + 1.0, float(module.eps))  # type: ignore[arg-type]
        return WideNorm(weight, float(module.variance_epsilon))  # type: ignore[arg-type]
    return None
