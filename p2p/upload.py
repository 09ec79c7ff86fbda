"""How much goes out: bytes a second over all peers, and bytes held for peers that read slowly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from glia.errors import QuotaExceeded

_BURST_S = 0.25


class UploadLimit:
    """A token bucket that may be overdrawn by one batch: who overdraws it waits, in turn.

    Args:
        bytes_per_s: 0 = no limit.
    """

    def __init__(self, bytes_per_s: int = 0) -> None:
        self._rate = bytes_per_s
        self._burst = bytes_per_s * _BURST_S
        self._level = self._burst
        self._at_s = 0.0

    @property
    def batch_bytes(self) -> int | None:
        """The most that should be sent at once, so that what waits is not long; None = any."""
        return int(self._burst) if self._rate else None

    def take(self, num_bytes: int, now_s: float) -> float:
        """Take so many, and learn how many seconds to wait before they are sent."""
        if not self._rate:
            return 0.0
        gained = (now_s - self._at_s) * self._rate
        self._level = min(self._burst, self._level + gained) - num_bytes
        self._at_s = now_s
        return max(0.0, -self._level / self._rate)

    def give_back(self, num_bytes: int) -> None:
        """Of what was taken, so many were not sent."""
        self._level += num_bytes


class Held:
    """A part of a budget."""

    def __init__(self, budget: SendingBudget, num_bytes: int) -> None:
        self._budget = budget
        self.num_bytes = num_bytes

    def shrink(self, num_bytes: int) -> None:
        """Less is needed."""
        self._budget.held_bytes -= self.num_bytes - num_bytes
        self.num_bytes = num_bytes


class SendingBudget:
    """Memory for what is read for peers, until these have taken it. It is held before it is used.

    Nobody waits for it: a peer that reads slowly would make all others wait. The less is
    left, the less is read at once for each; with none left a request is refused.
    """

    def __init__(self, total_bytes: int, peer_bytes: int) -> None:
        self._total, self._peer = total_bytes, peer_bytes
        self.held_bytes = 0

    @property
    def share_bytes(self) -> int:
        """The most to read at once; 0 where nothing is left."""
        return max(0, min(self._peer, (self._total - self.held_bytes) // 4))

    @contextmanager
    def hold(self, num_bytes: int) -> Iterator[Held]:
        """Have so many. Raises: QuotaExceeded where they are not left."""
        if num_bytes > self._total - self.held_bytes:
            raise QuotaExceeded("too much is on its way to peers that read slowly")
        self.held_bytes += num_bytes
        held = Held(self, num_bytes)
        try:
            yield held
        finally:
            held.shrink(0)
