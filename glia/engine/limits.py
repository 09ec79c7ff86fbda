"""How far honest K and V may be from the reference, and what their rows look like. Pure.

See spec/16-audit.md. Errors are relative: the L2 norm of the difference over that of the
reference, of K and of V of one window in one layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from glia.graph.profile import KvScheme

ACCUSED = 3.0  # limits away: no honest arithmetic
# Of the largest honest error that was measured. In bf16 a few positions of some windows are ten
# times as far off as others, and what was measured did not meet the worst of them; of three
# quarters of the positions that is not so.
WHOLE_MARGIN, COMMON_MARGIN = 3.0, 1.5
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
# What other machines' arithmetic gives, however this one's is: f32 with TF32 inputs, f16 and bf16
# that were computed in f32. Nobody is accused of less than ACCUSED times that.
_ELSEWHERE = {KvScheme.F32: (5e-4, 2e-3), KvScheme.F16: (6e-4, 0.0), KvScheme.BF16: (4.5e-3, 0.0)}


@dataclass(frozen=True, slots=True)
class Off:
    """How far one window is from the reference in one layer.

    Attributes:
        whole: of all positions together.
        common: three quarters of the positions are at least so far off.
    """

    whole: Pair
    common: Pair


@dataclass(frozen=True, slots=True)
class Judged:
    """One error of a window, held against its limit."""

    verdict: Verdict
    error: float
    limit: float

    @property
    def rank(self) -> tuple[bool, float]:
        """The larger, the worse."""
        share = self.error / self.limit if self.error == self.error else float("inf")
        return self.verdict == "false", share


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one model and storage scheme.

    Attributes:
        whole: per layer, of K and of V; of layer 0 against the producer's own arithmetic.
        common: the same of what three quarters of the positions are; None where not measured.
        norms: per layer, of K and of V: the least and the largest norm of a row of one head;
            None where they were not measured.
        elsewhere: what other machines' arithmetic may give, in layer 0 and in others.
    """

    whole: tuple[Pair, ...]
    common: tuple[Pair, ...] | None = None
    norms: tuple[tuple[Pair, Pair], ...] | None = None
    elsewhere: tuple[float, float] = (0.0, 0.0)

    @property
    def is_calibrated(self) -> bool:
        """Whether they were measured on this model."""
        return self.common is not None

    def judge(self, layer: int, off: Off) -> Judged:
        """The worst of what a window is off in a layer; verdicts as p2p/auditing.py has them."""
        return max(self._each(layer, off), key=lambda judged: judged.rank)

    def _each(self, layer: int, off: Off) -> Iterator[Judged]:
        kinds = [(off.whole, self.whole)]
        if self.common is not None:
            kinds.append((off.common, self.common))
        for errors, limits in kinds:
            for error, limit in zip(errors, limits[layer], strict=True):
                yield Judged(self._verdict(layer, error, limit), error, limit)

    def _verdict(self, layer: int, error: float, limit: float) -> Verdict:
        if error <= limit:  # False for NaN
            return "clean"
        if not self.is_calibrated:
            return "differs"
        accused = ACCUSED * max(limit, self.elsewhere[layer > 0])
        return "other" if error <= accused else "false"


def uncalibrated(scheme: KvScheme, num_layers: int) -> Limits:
    """For a model that was not calibrated here."""
    first, others = _UNCALIBRATED[scheme]
    return Limits(((first, first), *(((others, others),) * (num_layers - 1))))


def calibrated(
    scheme: KvScheme, worst: Sequence[Off], norms: Sequence[tuple[Pair, Pair]]
) -> Limits:
    """Args: worst, norms: per layer the largest, and the range, that honest computing gave."""
    least = _LEAST[scheme]  # on one kind of machine layer 0 may never have been off at all

    def limit(pair: Pair, margin: float) -> Pair:
        return max(margin * pair[0], least), max(margin * pair[1], least)

    wider = [tuple((low / _NORM_MARGIN, high * _NORM_MARGIN) for low, high in p) for p in norms]
    return Limits(
        whole=tuple(limit(off.whole, WHOLE_MARGIN) for off in worst),
        common=tuple(limit(off.common, COMMON_MARGIN) for off in worst),
        norms=tuple(wider),  # type: ignore[arg-type]
        elsewhere=_ELSEWHERE[scheme],
    )


def worst_of(offs: Sequence[Off]) -> Off:
    """The largest of each error."""

    def largest(pairs: Sequence[Pair]) -> Pair:
        return max(k for k, _ in pairs), max(v for _, v in pairs)

    return Off(largest([off.whole for off in offs]), largest([off.common for off in offs]))


def widest_of(ranges: Sequence[tuple[Pair, Pair]]) -> tuple[Pair, Pair]:
    """The range that has all of these, of K and of V."""
    k, v = zip(*ranges, strict=True)
    return tuple((min(low for low, _ in p), max(high for _, high in p)) for p in (k, v))  # type: ignore[return-value]
