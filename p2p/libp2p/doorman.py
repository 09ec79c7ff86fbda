"""Who may come in: decisions about inbound connections, without I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from p2p.host import Limits


class Doorman:
    """Counts inbound connections by address: those in their handshake, and those made.

    Where too many are in their handshake the oldest is sent away, of the same address if that
    has too many, else of the address that has most: an honest handshake takes milliseconds, one
    that only holds a place takes its whole time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pending: dict[int, tuple[str, Callable[[], None]]] = {}
        self._made: Counter[str] = Counter()
        self._next = 0

    def admit(self, address: str, send_away: Callable[[], None]) -> int | None:
        """A ticket for a handshake from this address; None where it has connections enough.

        Args:
            send_away: called where it must give way before `forget`.
        """
        if self._made[address] >= self._limits.max_connections_per_address:
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

    def made(self, ticket: int) -> None:
        """The handshake is done: from now on it is a connection, until `ended`."""
        address, _ = self._pending.pop(ticket)
        self._made[address] += 1

    def forget(self, ticket: int) -> None:
        """The handshake failed, or gave way."""
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
