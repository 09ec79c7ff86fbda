"""How far honest K and V may be from the reference, and what their rows look like. Pure.

See spec/16-audit.md. Errors are relative: the L2 norm of the difference over that of the
reference, of K and of V of one window in one layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glia.graph.profile import KvScheme

MARGIN = 1.5  # of the largest honest error that was measured
ACCUSED = 3.0  # limits away: no honest arithmetic
_NORM_MARGIN = 2.0

Pair = tuple[float, float]  # of K, of V
Verdict = Literal["clean", "other", "false", "differs"]

# For models that nobody calibrated: reason to drop, never to accuse. Wide: some models' noise is
# four times SmolLM2's, and what is honest must not be dropped. Layer 0, all others.
_UNCALIBRATED = {
    KvScheme.F32: (1e-5, 1e-4),
    KvScheme.F16: (3e-4, 2e-2),
    KvScheme.BF16: (2e-3, 1.5e-1),
}
_LEAST = {KvScheme.F32: 1e-6, KvScheme.F16: 1e-4, KvScheme.BF16: 5e-4}  # SECURITY 3.2, layer 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one model and storage scheme.

    Attributes:
        errors: per layer, of K and of V; of layer 0 against the producer's own arithmetic.
        norms: per layer, of K and of V: the least and the largest norm of a row of one head;
            None where they were not measured.
        is_calibrated: whether they were measured on this model.
    """

    errors: tuple[Pair, ...]
    norms: tuple[tuple[Pair, Pair], ...] | None = None
    is_calibrated: bool = False

    def verdict(self, layer: int, part: int, error: float) -> Verdict:
        """Of an error in K (part 0) or V (part 1) of a layer, as p2p/auditing.py has them."""
        limit = self.errors[layer][part]
        if error <= limit:  # False for NaN
            return "clean"
        if not self.is_calibrated:
            return "differs"
        return "other" if error <= ACCUSED * limit else "false"


def uncalibrated(scheme: KvScheme, num_layers: int) -> Limits:
    """For a model that was not calibrated here."""
    first, others = _UNCALIBRATED[scheme]
    return Limits(((first, first), *(((others, others),) * (num_layers - 1))))


def calibrated(
    scheme: KvScheme, errors: Sequence[Pair], norms: Sequence[tuple[Pair, Pair]]
) -> Limits:
    """Args: errors, norms: the largest, and the range, that honest computing gave."""
    least = _LEAST[scheme]  # on one kind of machine layer 0 may never have been off at all
    found = [(max(MARGIN * k, least), max(MARGIN * v, least)) for k, v in errors]
    wider = [tuple((low / _NORM_MARGIN, high * _NORM_MARGIN) for low, high in p) for p in norms]
    return Limits(tuple(found), tuple(wider), is_calibrated=True)  # type: ignore[arg-type]
