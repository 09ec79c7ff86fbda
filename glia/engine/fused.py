"""The fast path: Llama-class models with fused, packed linear layers.

    T new tokens, H query heads, G kv heads, D head_dim, E hidden size

Gives the bytes of the general path: the same operations in the same order, q, k and v
in one product and gate and up in another (measured: a column's bits do not depend on
the columns beside it).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from glia.engine.activation import RowActivation
from glia.engine.families import FUSED
from glia.engine.linear import RowLinear, pad_rows
from glia.kv.attention import PooledAttention


@dataclass(frozen=True, slots=True)
class _Norm:
    """RMS norm as transformers computes it: in f32, rounded before the weight."""

    weight: torch.Tensor
    eps: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:], None, self.eps).mul_(self.weight)


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: _Norm
    qkv: RowLinear
    q_norm: _Norm | None
    k_norm: _Norm | None
    out: RowLinear
    post_norm: _Norm
    gate_up: RowLinear
    down: RowLinear


def can_fuse(model: PreTrainedModel) -> bool:
    """Whether this model is of the class that the fused forward computes."""
    config = model.config
    return config.model_type in FUSED and config.hidden_act == "silu"


class FusedForward:
    """Llama, Mistral, Qwen2 and Qwen3 without transformers in the loop."""

    def __init__(self, model: PreTrainedModel, attention: PooledAttention) -> None:
        """Takes the model's weights over: its layers are emptied one by one."""
        self._attention = attention
        inner = model.model
        self._heads = model.config.num_attention_heads + 2 * model.config.num_key_value_heads
        self._num_q = model.config.num_attention_heads
        self._num_kv = model.config.num_key_value_heads
        self._embedding = inner.embed_tokens.weight.detach()
        self._norm = _norm(inner.norm)
        self._activation = RowActivation(nn.SiLU())
        self._head = RowLinear(model.lm_head.weight, model.lm_head.bias)
        self._layers = []
        for index in range(len(inner.layers)):
            self._layers.append(_layer(inner.layers[index]))
            inner.layers[index] = nn.Identity()

    @property
    def is_packed(self) -> bool:
        linears = [self._head]
        for layer in self._layers:
            linears += [layer.qkv, layer.out, layer.gate_up, layer.down]
        return all(linear.is_packed for linear in linears)

    def __call__(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        num_tokens = tokens.shape[0]
        hidden = nn.functional.embedding(pad_rows(tokens), self._embedding)
        attended: torch.Tensor | None = None
        for index, layer in enumerate(self._layers):
            qkv = self._qkv(layer, hidden)
            if attended is None:  # rows past the tokens stay zero: padding, never read
                attended = qkv.new_zeros(len(qkv), self._num_q * qkv.shape[2])
            self._attention.attend(index, qkv[:num_tokens], attended[:num_tokens])
            hidden = layer.out(attended).add_(hidden)
            gate, up = layer.gate_up(layer.post_norm(hidden)).chunk(2, -1)
            hidden = layer.down(self._activation(gate).mul_(up)).add_(hidden)
        logits: torch.Tensor = self._head(self._norm(hidden[wanted]))
        return logits

    def _qkv(self, layer: _Layer, hidden: torch.Tensor) -> torch.Tensor:
        """[rows, E] -> [rows, H + 2 * G, D]."""
        rows: torch.Tensor = layer.qkv(layer.input_norm(hidden))
        qkv = rows.view(len(hidden), self._heads, -1)
        if layer.q_norm is not None and layer.k_norm is not None:
            num_q, num_kv = self._num_q, self._num_kv
            q, k, v = torch.split(qkv, [num_q, num_kv, num_kv], 1)
            return torch.cat((layer.q_norm(q), layer.k_norm(k), v), 1)
        return qkv


def _norm(module: nn.Module) -> _Norm:
    return _Norm(module.weight.detach(), float(module.variance_epsilon))  # type: ignore[arg-type,operator]


def _layer(module: nn.Module) -> _Layer:
    attention, mlp = module.self_attn, module.mlp
    q_norm, k_norm = getattr(attention, "q_norm", None), getattr(attention, "k_norm", None)
    return _Layer(
        _norm(module.input_layernorm),  # type: ignore[arg-type]
        _joined(attention.q_proj, attention.k_proj, attention.v_proj),  # type: ignore[union-attr,arg-type]
        _norm(q_norm) if q_norm is not None else None,
        _norm(k_norm) if k_norm is not None else None,
        _joined(attention.o_proj),  # type: ignore[union-attr,arg-type]
        _norm(module.post_attention_layernorm),  # type: ignore[arg-type]
        _joined(mlp.gate_proj, mlp.up_proj),  # type: ignore[union-attr,arg-type]
        _joined(mlp.down_proj),  # type: ignore[union-attr,arg-type]
    )


def _joined(*linears: nn.Linear) -> RowLinear:
    """One product for layers that read the same input."""
    weight = torch.cat([linear.weight for linear in linears])
    biases = [linear.bias for linear in linears]
    if all(bias is None for bias in biases):
        return RowLinear(weight, None)
    zeros = [linear.weight.new_zeros(linear.out_features) for linear in linears]
    return RowLinear(
        weight, torch.cat([z if b is None else b for z, b in zip(zeros, biases, strict=True)])
    )
