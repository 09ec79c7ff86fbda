"""Whether K and V are the canonical ones: the CPU reference computes them once more.

    T tokens, G kv heads, D head_dim

Claims are compared with values before rounding, in units of the last place of the storage
dtype (ulp): rounding gives half of one at most, and EPSILON is what float64 sums in another
order may add (glia/spec/13-numerics.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glia.engine.canonical import CanonicalModel

EPSILON = 2.0**-10
MOST_ULP = 0.5 + EPSILON  # from the value before rounding, on whatever machine it was rounded


@dataclass(frozen=True, slots=True)
class Settled:
    """What the reference says of a claim.

    Attributes:
        num_elements: K and V of all layers.
        num_different: elements that it rounds to other bytes.
        most_ulp: how far an element is from its value before rounding, at most.
        layer: where that is.
    """

    num_elements: int
    num_different: int
    most_ulp: float
    layer: int

    @property
    def is_canonical(self) -> bool:
        """Whether all of it is what some machine rounds to."""
        return self.most_ulp <= MOST_ULP


def settle(
    model: CanonicalModel,
    before: Sequence[torch.Tensor],
    tokens: Sequence[int],
    claimed: Sequence[torch.Tensor],
) -> Settled:
    """Compare claimed K and V of T tokens with the reference's.

    Args:
        before: as CanonicalModel.recompute has it.
        claimed: per layer [..., G, 2 * D], T positions, storage dtype.
    Raises: PromptError, as CanonicalModel.recompute.
    """
    rows = [layer.reshape(-1, *layer.shape[-2:]) for layer in claimed]
    storage = rows[0].dtype
    found = model.recompute(before, tokens, storage, unrounded=True, claimed=rows)
    num_different, most, where = 0, -1.0, 0
    for layer, (mine, theirs) in enumerate(zip(found.unrounded or (), rows, strict=True)):
        num_different += int((theirs != mine.to(storage)).sum())
        if (distance := most_ulp(mine, theirs)) > most:
            most, where = distance, layer
    return Settled(sum(layer.numel() for layer in rows), num_different, most, where)


def most_ulp(mine: torch.Tensor, claimed: torch.Tensor) -> float:
    """How far claimed values are from those before rounding, at most; infinite for NaN.

    Args: mine: float64. claimed: the same shape, storage dtype.
    """
    distances = (claimed.double() - mine).abs() / _ulp(mine, claimed.dtype)
    return float(distances.nan_to_num(nan=torch.inf, posinf=torch.inf).max())


def _ulp(values: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """The distance of neighbours of a dtype at these float64 values."""
    kind = torch.finfo(storage)
    _, exponent = torch.frexp(values.abs().clamp(min=kind.smallest_normal))
    return torch.ldexp(torch.full_like(values, kind.eps), exponent - 1)
