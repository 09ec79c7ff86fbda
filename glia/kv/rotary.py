"""Rotary position embedding in two halves (Llama style), applied at dispatch.

    P positions, D head_dim

New and restored keys go through the same three roundings, so a restored key has the bits
that prefill gave it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Rotary:
    """Cosine and sine of every position.

    Attributes:
        cos: [P, D], compute dtype.
        signed_sin: [P, D]; the first half negated, so that x2 * -sin stands for -x2 * sin
            (negation is exact) and the halves need swapping only.
    """

    cos: torch.Tensor
    signed_sin: torch.Tensor

    @classmethod
    def from_tables(cls, cos: torch.Tensor, sin: torch.Tensor) -> Rotary:
        """From plain tables [P, D] as the model's own rotary module computes them."""
        signed = sin.clone()
        signed[:, : sin.shape[1] // 2].neg_()
        return cls(cos.contiguous(), signed)

    def at(self, position: int, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and signed sin [T, D] of positions from `position` on."""
        return (
            self.cos[position : position + num_tokens],
            self.signed_sin[position : position + num_tokens],
        )


def rotate(x: torch.Tensor, cos: torch.Tensor, signed_sin: torch.Tensor) -> torch.Tensor:
    """x * cos + swap_halves(x) * signed_sin, each step rounded to the dtype as in transformers.

    Args:
        x: [..., D]; cos, signed_sin: broadcastable to it.
    """
    swapped = x.roll(x.shape[-1] // 2, -1)
    return (x * cos).add_(swapped.mul_(signed_sin))


def rotate_in_place(
    x: torch.Tensor, swapped: torch.Tensor, cos: torch.Tensor, signed_sin: torch.Tensor
) -> None:
    """`rotate` for many keys, without a new tensor.

    Args:
        x: [..., D].
        swapped: room for as much.
    """
    half = x.shape[-1] // 2
    swapped[..., :half] = x[..., half:]
    swapped[..., half:] = x[..., :half]
    x.mul_(cos).add_(swapped.mul_(signed_sin))
