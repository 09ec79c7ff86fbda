"""A share of a trace's windows that was run again, and what that says of it. See spec/17-trace.md.

A *unit* is a window, or the tokens behind the last one. The last window's id commits to all
windows before it, so order, tokens and classes of all of them are compared; K, V and what was
chosen are looked at where a unit was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, comb

from glia.graph.ids import ID_BYTES, ProfileId, WindowId, derive
from glia.graph.tokens import pack_tokens
from glia.graph.trace import ClassRun, Trace
from glia.graph.verdict import Finding

_ALTERED = (1, 4, 16, 64)
_CONTEXT = "glia 2026 v1 leading windows"


@dataclass(frozen=True, slots=True)
class UnitFound:
    """What came of a unit.

    Attributes:
        is_own: whether it is of the class that it was computed in now.
        verdict: equal (bit by bit), clean, other, differs or false (spec/16-audit.md); "" where
            no window is there to compare.
        differing: positions, of the `num_chosen` that follow from it, that would be another token.
    """

    at: int
    is_own: bool
    verdict: str
    num_chosen: int
    differing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SampleFound:
    """What came of those that were drawn, out of `num_units`.

    Attributes:
        leading: of the windows that the trace's last window commits to.
    """

    leading: bytes
    profile_id: ProfileId
    num_units: int
    units: tuple[UnitFound, ...]
    numerics_class: str
    is_calibrated: bool
    duration_s: float


@dataclass(frozen=True, slots=True)
class SampleVerdict:
    """What is to be said of a trace.

    Attributes:
        are_named: whether its windows are, in order, those of its tokens and classes.
        num_windows: that were drawn; num_equal of them are bit by bit what was computed, num_clean
            more as near as they honestly may be.
        num_chosen: tokens chosen from the units drawn; num_same would be chosen again.
        num_beyond: tokens behind all units: nothing was looked at.
        is_exact: whether all that was drawn is of the class it was computed in.
        unseen: how likely it is that of so many altered units none is among those drawn.
    """

    finding: Finding
    num_tokens: int
    num_units: int
    num_drawn: int
    are_named: bool
    num_windows: int
    num_equal: int
    num_clean: int
    num_chosen: int
    num_same: int
    num_beyond: int
    is_exact: bool
    is_calibrated: bool
    numerics_class: str
    differing: tuple[int, ...]
    unseen: dict[int, float]
    duration_s: float


def leading(windows: Sequence[WindowId], tokens: Sequence[int], runs: Sequence[ClassRun]) -> bytes:
    """One name for windows, all their tokens, and their classes, in order."""
    each = [f"{run.num_windows} {run.numerics_class}\n".encode() for run in runs]
    count = len(windows).to_bytes(ID_BYTES, "little")
    said = b"".join((count, *windows, pack_tokens(tokens), *each))
    return derive(_CONTEXT, said)


def drawn(
    num_units: int, share: float, choose: Callable[[Sequence[int], int], list[int]]
) -> list[int]:
    """Which units are run again, in order: a share of them, rounded up.

    Args: choose: so many of these, each as likely; of the verifier's own chance.
    """
    return sorted(choose(range(num_units), min(num_units, max(1, ceil(share * num_units)))))


def unseen(num_units: int, num_drawn: int, num_altered: int) -> float:
    """How likely it is that none of the altered units is drawn."""
    return comb(num_units - num_altered, num_drawn) / comb(num_units, num_drawn)


def judge_sample(trace: Trace, found: SampleFound) -> SampleVerdict:
    """Hold a trace against what was computed of a share of it."""
    num, units = len(trace.windows), found.units
    covered = trace.tokens[: num * trace.block_size]
    are_named = (
        found.leading == leading(trace.windows, covered, trace.runs)
        and found.profile_id == trace.profile_id
    )
    compared = [each for each in units if each.verdict]
    differing = tuple(at for each in units for at in each.differing)
    verdicts = {each.verdict for each in compared}
    num_chosen = sum(each.num_chosen for each in units)
    if not are_named or "false" in verdicts or any(e.is_own and e.differing for e in units):
        finding = Finding.REFUTED
    elif differing or verdicts & {"other", "differs"}:
        finding = Finding.UNDECIDED
    elif not compared and not num_chosen:
        finding = Finding.NOTHING
    else:
        finding = Finding.CONFIRMED
    return SampleVerdict(
        finding=finding,
        num_tokens=len(trace.tokens),
        num_units=found.num_units,
        num_drawn=len(units),
        are_named=are_named,
        num_windows=len(compared),
        num_equal=sum(each.verdict == "equal" for each in compared),
        num_clean=sum(each.verdict == "clean" for each in compared),
        num_chosen=num_chosen,
        num_same=num_chosen - len(differing),
        num_beyond=max(0, len(trace.tokens) - (num + 1) * trace.block_size),
        is_exact=all(each.is_own for each in units),
        is_calibrated=found.is_calibrated,
        numerics_class=found.numerics_class,
        differing=differing,
        unseen={
            count: unseen(found.num_units, len(units), count)
            for count in _ALTERED
            if count <= found.num_units
        },
        duration_s=found.duration_s,
    )
