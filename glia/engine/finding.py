"""What came of looking at a window that somebody else computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from glia.engine.limits import Limits, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a check, or of an audit.

    Attributes:
        verdict: clean, other, false or differs (p2p/auditing.py).
        what: which check that was: rows, norms, layer 0, all layers.
        layer, error, limit: where it was the furthest off, and by how much.
    """

    verdict: Verdict
    what: str
    layer: int = 0
    error: float = 0.0
    limit: float = 0.0

    @property
    def is_clean(self) -> bool:
        return self.verdict == "clean"


class Checks(Protocol):
    """Looks at windows that peers sent (glia/engine/examining.py)."""

    @property
    def is_calibrated(self) -> bool:
        """Whether it was measured for this model how far off honest windows are."""

    def take_limits(self, limits: Limits | None) -> None:
        """Use these from now on; None: nobody measured them."""

    def check(
        self,
        tokens: Sequence[int],
        windows: Sequence[torch.Tensor],
        is_canonical: Sequence[bool],
    ) -> list[Finding]:
        """Whether each is what a model may give. Args: as Examiner.check."""

    def audit(
        self,
        before: Sequence[torch.Tensor],
        window: Sequence[torch.Tensor],
        tokens: Sequence[int],
        *,
        is_canonical: bool,
    ) -> Finding:
        """Compute one again. Args: as Examiner.audit."""
