"""Who may come in: decisions about inbound connections, without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from p2p.host import Limits
from p2p.rates import Buckets, Rate

_BURST_S = 16.0  # seconds whose handshakes may come at once


class Doorman:
    """Counts inbound connections by address: those in their handshake, and those made.

    Where too many are in their handshake the oldest is sent away, of the same address if that
    has too many, else of the address that has most: an honest handshake takes milliseconds, one
    that only holds a place takes its whole time. One that is worked on costs, however it ends: of
    those an address has so many a second.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pending: dict[int, tuple[str, Callable[[], None]]] = {}
        self._made: Counter[str] = Counter()
        per_s = limits.max_handshakes_per_s
        self._worked_on = Buckets[str](Rate(per_s, _BURST_S * per_s))
        self._next = 0

    def admit(self, address: str, now_s: float, send_away: Callable[[], None]) -> int | None:
        """A ticket for a handshake from this address; None where it had enough, or too many.

        Args:
            send_away: called where it must give way before `forget`.
        """
        if self._made[address] >= self._limits.max_connections_per_address:
            return None
        if not self._worked_on.has(address, 1.0, now_s):
            return None
        if self._made.total() >= self._limits.max_connections:
            return None
        if self._num_pending(address) >= self._limits.max_pending_per_address:
            self._send_away_oldest(address)
        elif len(self._pending) >= self._limits.max_pending:
            crowd = Counter(address for address, _ in self._pending.values())
            self._send_away_oldest(crowd.most_common(1)[0][0])
        self._next += 1
        self._pending[self._next] = address, send_away
        return self._next

    def made(self, ticket: int, now_s: float) -> None:
        """The handshake is done: from now on it is a connection, until `ended`."""
        address, _ = self._pending.pop(ticket)
        self._worked_on.take(address, 1.0, now_s)
        self._made[address] += 1

    def failed(self, ticket: int, now_s: float) -> None:
        """The peer sent something, and it was no handshake."""
        if ticket in self._pending:
            self._worked_on.take(self._pending.pop(ticket)[0], 1.0, now_s)

    def forget(self, ticket: int) -> None:
        """Its time is over, or it gave way."""
        self._pending.pop(ticket, None)

    def ended(self, address: str) -> None:
        """A connection that was made is closed."""
        self._made[address] -= 1
        if not self._made[address]:
            del self._made[address]

    def _num_pending(self, address: str) -> int:
        return sum(1 for other, _ in self._pending.values() if other == address)

    def _send_away_oldest(self, address: str) -> None:
        oldest = next(key for key, (other, _) in self._pending.items() if other == address)
        _, send_away = self._pending.pop(oldest)
        send_away()
