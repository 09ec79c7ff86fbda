"""The general path: an unmodified transformers module over the pool.

    T new tokens, H query heads, G kv heads, D head_dim

The rotary module is replaced by one that returns cos 1 and sin 0, so K and Q reach the
attention function unrotated; the function stores, rotates and attends by the tile
schedule. A mask function is registered beside it: without one transformers passes no
mask where a chunk continues, and logits are silently wrong. No cache object is needed,
since the attention function sees every new K and V itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from glia.engine.activation import RowActivation
from glia.engine.linear import RowLinear, pad_rows
from glia.errors import ModelRefused
from glia.graph.profile import LayerShape
from glia.kv.attention import LayerAttention, LayerHeads
from glia.kv.rotary import Rotary

_NAME = "glia_tiles"
_TABLE_PIECE = 128
_UNKNOWN_SCORES = ("softcap", "s_aux", "sliding_window")


class NoRotation(nn.Module):
    """Stands where the rotary module stood; the model's own rotation then changes nothing."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self._dim = dim

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (*position_ids.shape, self._dim)
        return x.new_ones(shape), x.new_zeros(shape)


def _attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, H, rows, D], key and value [1, G, rows, D] -> [1, rows, H, D]."""
    if any(kwargs.get(name) is not None for name in _UNKNOWN_SCORES):
        raise ModelRefused("the model changes its attention scores in a way that is not known here")
    attention: LayerAttention = module.glia_attention  # type: ignore[assignment]
    num_tokens = attention.num_tokens
    qkv = torch.cat((query[0], key[0], value[0])).transpose(0, 1)[:num_tokens].contiguous()
    _, num_heads, num_rows, dim = query.shape
    out = query.new_zeros(num_rows, num_heads * dim)
    attention.attend(module.layer_idx, qkv, out[:num_tokens])  # type: ignore[arg-type]
    return out.view(1, num_rows, num_heads, dim), None


def _no_mask(*_: Any, **__: Any) -> None:
    """The attention function has its own."""


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, _no_mask)


def layer_shapes(model: PreTrainedModel) -> tuple[LayerShape, ...]:
    """K/V shape of each layer."""
    config = model.config
    return tuple(
        LayerShape(index, config.num_key_value_heads, layer.self_attn.head_dim)
        for index, layer in enumerate(model.model.layers)
    )


def layer_heads(model: PreTrainedModel, rotary: Rotary) -> list[LayerHeads]:
    """What attention needs of each layer.

    Raises: ModelRefused where a layer's attention does not look as expected.
    """
    heads = []
    for layer in model.model.layers:
        module = layer.self_attn
        dim = module.head_dim
        if rotary.cos.shape[1] != dim:
            raise ModelRefused("the model rotates a part of each head")
        rotates = getattr(module, "use_rope", True)
        heads.append(
            LayerHeads(
                model.config.num_attention_heads,
                model.config.num_key_value_heads,
                dim,
                float(module.scaling),
                rotary if rotates else None,
            )
        )
    return heads


def own_rotary(model: PreTrainedModel, num_positions: int) -> Rotary:
    """Tables by the model's own module, in pieces of one size: how a large tensor is cut
    for threads may change a last bit, and the tables must not depend on the pool's size."""
    weight = model.model.embed_tokens.weight
    starts = range(0, num_positions, _TABLE_PIECE)
    piece = torch.arange(_TABLE_PIECE, device=weight.device)[None]
    tables = [model.model.rotary_emb(weight, piece + start) for start in starts]
    cos, sin = (torch.cat(parts, 1)[0, :num_positions] for parts in zip(*tables, strict=True))
    return Rotary.from_tables(cos, sin)


def attend_by(model: PreTrainedModel, attention: LayerAttention) -> None:
    """Have the model's layers attend by `attention`, which gets K and Q unrotated."""
    model.model.rotary_emb = NoRotation(model.model.layers[0].self_attn.head_dim)
    for layer in model.model.layers:
        layer.self_attn.glia_attention = attention
        _wrap_activation(layer.mlp)
    attend_here(model)


def attend_here(model: PreTrainedModel) -> None:
    """Have a model's layers call this module for attention."""
    model.set_attn_implementation(_NAME)


def logits_of(model: PreTrainedModel, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """tokens [T] int64, wanted [B] int64 -> logits [B, V] of tokens[wanted]."""
    rows = pad_rows(tokens)
    positions = torch.zeros_like(rows)[None]
    out = model(
        input_ids=rows[None], position_ids=positions, use_cache=False, logits_to_keep=wanted
    )
    logits: torch.Tensor = out.logits[0]
    return logits


class GeneralForward:
    """Any allowed model type, as transformers computes it."""

    def __init__(
        self, model: PreTrainedModel, attention: LayerAttention, *, pack_once: bool = True
    ) -> None:
        """Takes the model over: its rotary, Linear and activation modules are replaced."""
        self._model = model
        attend_by(model, attention)
        self._linears = _swap_linears(model, pack_once)

    @property
    def is_packed(self) -> bool:
        return all(linear.is_packed for linear in self._linears)

    def __call__(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return logits_of(self._model, tokens, wanted)


def _wrap_activation(mlp: nn.Module) -> None:
    for name in ("act_fn", "act"):
        if hasattr(mlp, name) and not isinstance(getattr(mlp, name), RowActivation):
            setattr(mlp, name, RowActivation(getattr(mlp, name)))


def _swap_linears(model: nn.Module, pack_once: bool) -> list[RowLinear]:
    """Replace every nn.Linear; what was packed loses its first copy."""
    found = []
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                linear = RowLinear(child.weight, child.bias, pack_once=pack_once)
                setattr(parent, name, linear)
                found.append(linear)
    return found
