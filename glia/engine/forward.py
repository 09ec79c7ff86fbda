"""A way through a model's layers; attention is the pool's. Two keep it: general and fused."""

from __future__ import annotations

from typing import Protocol

import torch


class Forward(Protocol):
    """Tokens in, logits of some out. Called after `PooledAttention.begin`."""

    @property
    def is_packed(self) -> bool:
        """Whether every linear layer has packed weights."""

    def __call__(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """tokens [T] int64, wanted [B] int64 -> logits [B, V] of tokens[wanted], compute dtype."""
