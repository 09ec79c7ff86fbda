"""Ask peers, fetch from them, or compute: decisions, pure. See DESIGN C21.

Whatever peers do, local computing is delayed by no more than a small share of the time that
it takes while they are asked, and by one more while what they sent does not come.
"""

from __future__ import annotations

DELAY_SHARE = 0.05  # of the time that computing takes
LEAST_S = 0.05  # a look-up in a local network


def is_worth_asking(compute_s: float) -> bool:
    """Whether computing takes longer than to ask who has it."""
    return compute_s > LEAST_S


def budget_s(compute_s: float) -> float:
    """How long peers are asked before it is computed."""
    return max(LEAST_S, DELAY_SHARE * compute_s)


class Patience:
    """How long to go on with a fetch. Times are those of one clock.

    Time is cut into turns of `budget_s`. In each at least one window must arrive, and from the
    second one on as many as would have been computed meanwhile; else what is left is computed.
    So what bad peers cost is what one turn takes, whatever they do.

    Args:
        compute_s: what all of it would take to compute.
        window_s: what one window would.

    Attributes:
        deadline_s: when to give up, unless more arrives before.
    """

    def __init__(self, now_s: float, compute_s: float, window_s: float) -> None:
        self._turn_s = budget_s(compute_s)
        self._usual = max(1, int(self._turn_s / window_s))
        self._due, self._num_arrived = 1, 0
        self._end_s = self.deadline_s = now_s + self._turn_s

    def arrived(self, now_s: float) -> None:
        """A window is here, before the deadline."""
        while now_s >= self._end_s:
            self._end_s += self._turn_s
            self._due, self._num_arrived = self._usual, 0
        self._num_arrived += 1
        is_enough = self._num_arrived >= self._due
        self.deadline_s = self._end_s + (self._turn_s if is_enough else 0.0)
