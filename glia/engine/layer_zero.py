"""K and V of layer 0: they follow from the tokens alone, so any window's can be held against them.

    T tokens, G kv heads, D head_dim

No history is needed, and two small products are computed: embedding, norm, K and V. What is
kept of a model beside what computes is layer 0's part of that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel

from glia.engine.huggingface import NoRotation, attend_here
from glia.engine.linear import RowLinear, pad_rows

_M = TypeVar("_M", bound=nn.Module)


class LayerZero:
    """Layer 0 of one model, in the model's own arithmetic."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Shares the model's modules: made before any of them is replaced."""
        inner = _twin(model.model)
        layer = _twin(inner.layers[0])
        attention = _twin(layer.self_attn)
        self._seen = _Seen()
        attention.glia_attention = self._seen
        for name in ("k_proj", "v_proj"):
            linear = getattr(attention, name)
            if type(linear) is nn.Linear:
                setattr(attention, name, RowLinear(linear.weight, linear.bias))
        has_norm = getattr(attention, "q_norm", None) is not None
        width = attention.q_proj.weight.shape[0] if has_norm else attention.head_dim
        attention.q_proj = _NoQueries(int(width))
        attention.o_proj = nn.Identity()
        layer.self_attn, layer.mlp = attention, nn.Identity()
        inner.layers = nn.ModuleList([layer])
        inner.rotary_emb = NoRotation(attention.head_dim)
        self._inner = inner
        self._is_ready = False

    @torch.inference_mode()
    def __call__(self, tokens: Sequence[int]) -> torch.Tensor:
        """[T, G, 2 * D] in host memory, K unrotated, then V; in what the model computes in.

        From the first call on the model's attention is the engine's.
        """
        if not self._is_ready:
            attend_here(self._inner)
            self._is_ready = True
        device = self._inner.embed_tokens.weight.device
        ids = pad_rows(torch.tensor(tokens, dtype=torch.int64, device=device))[None]
        self._seen.num_tokens = len(tokens)
        try:
            self._inner(input_ids=ids, position_ids=torch.zeros_like(ids), use_cache=False)
        except _Enough as enough:
            return enough.rows.cpu()
        raise RuntimeError("layer 0 has no attention")


class _Enough(Exception):
    """Layer 0 has its K and V: the rest is not computed."""

    def __init__(self, rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = rows


class _Seen:
    """Stands where attention is."""

    def __init__(self) -> None:
        self.num_tokens = 0

    def attend(self, layer: int, qkv: torch.Tensor, out: torch.Tensor) -> None:
        """qkv [T, H + 2 * G, D]. Raises: _Enough, always."""
        dim = qkv.shape[2]
        num_q = out.shape[1] // dim
        num_kv = (qkv.shape[1] - num_q) // 2
        k, v = qkv[:, num_q : num_q + num_kv], qkv[:, num_q + num_kv :]
        raise _Enough(torch.cat((k, v), 2).add_(0.0))  # as what is stored has no -0.0


class _NoQueries(nn.Module):
    """Nobody asks for Q here, and it takes more than K and V together.

    Args: num_outputs: of one head, unless a norm goes over all of them.
    """

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self._num_outputs = num_outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., K] -> [..., N]."""
        return x.new_zeros(*x.shape[:-1], self._num_outputs)


def _twin(module: _M) -> _M:
    """The same module, in which others can be put in place of its own."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin
