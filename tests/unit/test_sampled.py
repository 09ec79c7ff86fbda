"""What a share of a trace's windows says of it, and what it cannot."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from glia.graph.ids import WindowId
from glia.graph.sampled import (
    SampleFound,
    UnitFound,
    drawn,
    judge_sample,
    leading,
    unseen,
)
from glia.graph.trace import ClassRun, Trace
from glia.graph.verdict import Finding
from tests.vectors.make_trace import traces

LONG: Trace = max((each.trace for each in traces().values()), key=lambda t: len(t.windows))
NUM = len(LONG.windows)


def found(*units: UnitFound, trace: Trace = LONG) -> SampleFound:
    covered = trace.tokens[: len(trace.windows) * trace.block_size]
    said = leading(trace.windows, covered, trace.runs)
    return SampleFound(said, trace.profile_id, NUM + 1, units, "native:here", True, 1.0)


EQUAL = UnitFound(0, True, "equal", 3, ())
CLEAN = UnitFound(1, False, "clean", 0, ())


def test_all_equal_is_confirmed_and_says_what_may_go_unseen() -> None:
    assert NUM >= 2
    verdict = judge_sample(LONG, found(EQUAL, CLEAN))
    assert (verdict.finding, verdict.is_exact) == (Finding.CONFIRMED, False)
    assert (verdict.num_equal, verdict.num_clean, verdict.num_same) == (1, 1, 3)
    assert verdict.unseen[1] == pytest.approx(1 - 2 / (NUM + 1))
    assert judge_sample(LONG, found(EQUAL)).is_exact


@pytest.mark.parametrize(
    ("unit", "finding"),
    [
        (replace(EQUAL, verdict="false"), Finding.REFUTED),
        (replace(CLEAN, verdict="false"), Finding.REFUTED),
        (replace(EQUAL, differing=(5,)), Finding.REFUTED),
        (replace(CLEAN, num_chosen=3, differing=(5,)), Finding.UNDECIDED),
        (replace(CLEAN, verdict="other"), Finding.UNDECIDED),
        (replace(CLEAN, verdict="differs"), Finding.UNDECIDED),
    ],
)
def test_what_differs(unit: UnitFound, finding: Finding) -> None:
    assert judge_sample(LONG, found(EQUAL, unit)).finding is finding


def test_windows_of_other_tokens_order_or_classes_are_refuted() -> None:
    named = found(EQUAL)
    for altered in (
        replace(LONG, tokens=(LONG.tokens[0] + 1, *LONG.tokens[1:])),
        replace(LONG, windows=(*LONG.windows[1::-1], *LONG.windows[2:])),
        replace(LONG, windows=(WindowId(bytes(32)), *LONG.windows[1:])),
        replace(LONG, runs=(ClassRun("native:other", NUM),)),
    ):
        verdict = judge_sample(altered, named)
        assert (verdict.finding, verdict.are_named) == (Finding.REFUTED, False)


def test_nothing_to_compare_confirms_nothing() -> None:
    end = UnitFound(NUM, True, "", 0, ())
    assert judge_sample(LONG, found(end)).finding is Finding.NOTHING


def test_the_share_is_rounded_up_and_every_unit_as_likely() -> None:
    seen = [0] * 20
    for seed in range(2000):
        places = drawn(20, 0.11, random.Random(seed).sample)
        assert places == sorted(set(places))
        assert len(places) == 3
        for at in places:
            seen[at] += 1
    assert 230 < min(seen) <= max(seen) < 370  # 300 each; five times their spread of 16
    assert drawn(1, 1e-9, random.Random(1).sample) == [0]
    assert drawn(9, 1.0, random.Random(1).sample) == list(range(9))


def test_how_likely_altered_ones_go_unseen() -> None:
    assert unseen(100, 5, 1) == pytest.approx(0.95)
    assert unseen(100, 100, 1) == 0.0
    hits = sum(not set(drawn(50, 0.1, random.Random(s).sample)) & {3, 17, 40} for s in range(4000))
    assert hits / 4000 == pytest.approx(unseen(50, 5, 3), abs=0.035)  # five times its spread
