"""A way through a model's layers; attention is the pool's. Two keep it: general and fused."""

from __future__ import annotations

from typing import Protocol

import torch


class Forward(Protocol):
    """Tokens in, logits of the last one out. Called after `PooledAttention.begin`."""

    @property
    def is_packed(self) -> bool:
        """Whether every linear layer has packed weights."""

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens [T] int64 -> logits [V] of the last, compute dtype."""
