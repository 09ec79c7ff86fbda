"""What a log that was run again says of its trace. See spec/17-trace.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from glia.graph.ids import ProfileId, WindowId
from glia.graph.trace import Trace


class Finding(StrEnum):
    """What was found.

    CONFIRMED: all that was compared is equal. REFUTED: what must be equal is not. UNDECIDED:
    tokens differ, and honest engines of two numerics classes may choose differently. NOTHING:
    there was nothing to compare.
    """

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A log that was run again.

    Attributes:
        windows: its leading full windows, in this numerics class and profile.
        num_same: tokens of answers that would be chosen again.
        differing: positions of the first that would not.
    """

    windows: tuple[WindowId, ...]
    numerics_class: str
    profile_id: ProfileId
    num_same: int
    differing: tuple[int, ...]
    duration_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a trace.

    Attributes:
        num_windows: of the trace; num_equal of them are byte for byte what was computed,
            num_comparable are of the class it was computed in, from the first on.
        num_chosen: tokens whose sampler is in the trace; num_same of them would be chosen again.
        num_given: tokens of answers whose sampler is not known: they are taken as given.
        is_exact: whether all of it is of the class that it was computed in: nothing may differ.
        differing: positions of the first tokens that differ.
    """

    finding: Finding
    num_tokens: int
    num_windows: int
    num_comparable: int
    num_equal: int
    num_chosen: int
    num_same: int
    num_given: int
    is_exact: bool
    numerics_class: str
    differing: tuple[int, ...]
    duration_s: float


def judge(trace: Trace, found: Recomputed) -> Verdict:
    """Hold a trace against what was computed of its tokens."""
    num_comparable = _num_comparable(trace, found)
    pairs = zip(trace.windows[:num_comparable], found.windows[:num_comparable], strict=True)
    num_equal = sum(one == other for one, other in pairs)
    spans = [(answer.end - answer.start, answer.sampling is not None) for answer in trace.answers]
    num_chosen = sum(length for length, is_known in spans if is_known)
    classes = {run.numerics_class for run in trace.runs}
    is_exact = found.profile_id == trace.profile_id and classes == {found.numerics_class}
    if num_equal < num_comparable or (is_exact and found.num_same < num_chosen):
        finding = Finding.REFUTED
    elif found.num_same < num_chosen:
        finding = Finding.UNDECIDED
    elif not num_chosen and not num_comparable:
        finding = Finding.NOTHING
    else:
        finding = Finding.CONFIRMED
    return Verdict(
        finding=finding,
        num_tokens=len(trace.tokens),
        num_windows=len(trace.windows),
        num_comparable=num_comparable,
        num_equal=num_equal,
        num_chosen=num_chosen,
        num_same=found.num_same,
        num_given=sum(length for length, is_known in spans if not is_known),
        is_exact=is_exact,
        numerics_class=found.numerics_class,
        differing=found.differing,
        duration_s=found.duration_s,
    )


def _num_comparable(trace: Trace, found: Recomputed) -> int:
    """Leading windows that must be byte for byte what was computed."""
    first = trace.runs[0] if trace.runs else None
    if first is None or found.profile_id != trace.profile_id:
        return 0
    if first.numerics_class != found.numerics_class:
        return 0
    return min(first.num_windows, len(found.windows))
