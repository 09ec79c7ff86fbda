"""How fast engines compute: a guess from their loading, until prompts tell."""

from __future__ import annotations

import pytest

from daemon.binding import Binding
from daemon.prefill import USUAL_SPEED, PrefillSpeeds
from glia.local.messages import Generated
from glia.local.values import CachedValue, UsageValue
from tests.builders import CLASS, MODEL, TINY

BINDING = Binding(MODEL, TINY, CLASS)


def generated(num_computed: int, prefill_ms: float) -> Generated:
    usage = UsageValue(num_computed, 1, CachedValue(), num_computed)
    return Generated(1, [1], "length", None, usage, 1.0, {"prefill": prefill_ms})


def test_a_guess_holds_until_a_prompt_was_computed() -> None:
    speeds = PrefillSpeeds()
    assert speeds.of(BINDING) == USUAL_SPEED
    speeds.guess(BINDING, 0.0)
    assert speeds.of(BINDING) == USUAL_SPEED
    speeds.guess(BINDING, 5000.0)
    assert speeds.of(BINDING) == 5000.0
    assert speeds.of(Binding(MODEL, TINY, "native:other")) == USUAL_SPEED
    speeds.learn(BINDING, generated(63, 1.0))  # too short to tell
    assert speeds.of(BINDING) == 5000.0
    speeds.learn(BINDING, generated(1000, 500.0))
    assert speeds.of(BINDING) == 2000.0
    speeds.guess(BINDING, 9000.0)  # another engine of it was loaded
    assert speeds.of(BINDING) == 2000.0
    speeds.learn(BINDING, generated(1000, 250.0))
    assert speeds.of(BINDING) == pytest.approx(2600.0)
