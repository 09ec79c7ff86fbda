"""Which windows of others are computed again, and what that can show: decisions, pure.

A link says who computed a window, not that it did so truly. Who signed it is told only after
it came whether it is one that is computed again, and cannot foresee it (SECURITY 3.5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from p2p.ledger import Trust

Verdict = Literal["clean", "other", "false", "differs"]
"""clean: as it must be. false: nobody computed this honestly. other: the arithmetic of another
machine, no lie. differs: that much, and nothing says how much is honest for this model."""

FIRST_WINDOWS = 32  # of a stranger: every one
KNOWN_AFTER = 500  # clean ones make a stranger as good as known
MAX_OTHER, OTHER_AMONG = 3, 100  # so many of other arithmetic among so many: its word counts less
_OWN, _KNOWN, _STRANGER = 0.005, 0.05, 0.25


def rate_of(trust: Trust, num_clean: int, *, is_lowered: bool = False) -> float:
    """The share of a neuron's windows that is computed again.

    Args:
        num_clean: of its windows that were, and held.
        is_lowered: too many of them were of other arithmetic.
    """
    if trust == "own":
        return _OWN
    if is_lowered:
        return _STRANGER
    if trust == "known" or num_clean >= KNOWN_AFTER:
        return _KNOWN
    return 1.0 if num_clean < FIRST_WINDOWS else _STRANGER


def is_waited_for(trust: Trust, num_clean: int) -> bool:
    """Whether an answer begins only when the windows drawn have been computed again."""
    return trust == "stranger" and num_clean < KNOWN_AFTER


def drawn(
    trust: Trust,
    num_clean: int,
    num_windows: int,
    random: Callable[[], float],
    *,
    is_lowered: bool = False,
) -> list[bool]:
    """Which of some windows that came are computed again.

    Args:
        random: from [0, 1), of the system's own source: nobody else may know it before.
    """
    found: list[bool] = []
    for _ in range(num_windows):
        rate = rate_of(trust, num_clean + sum(found), is_lowered=is_lowered)
        found.append(random() < rate)
    return found


def detection(rate: float, num_bad: int) -> float:
    """The chance that at least one of so many false windows is computed again."""
    return float(1.0 - (1.0 - rate) ** num_bad)


def used_before(rate: float) -> float:
    """How many false windows of a neuron are used before the first is found, on average."""
    return (1.0 - rate) / rate
