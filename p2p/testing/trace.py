"""What happened in a world, in order, and one hash over it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import blake3

_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Event:
    """`time_s` since the world began; `details` as the event's kind has them."""

    time_s: float
    kind: str
    details: tuple[str | int, ...]


class Trace:
    """Every event is in the hash; the last ones can be read.

    Attributes:
        counts: of events, by kind.
        sent_bytes: by streams.
    """

    def __init__(self) -> None:
        self.events: deque[Event] = deque(maxlen=_KEPT)
        self.num_events = 0
        self.counts = Counter[str]()
        self.sent_bytes = 0
        self._hash = blake3.blake3()

    def add(self, time_s: float, kind: str, *details: str | int) -> None:
        """Note an event."""
        event = Event(round(time_s, 9), kind, details)
        self.events.append(event)
        self.num_events += 1
        self.counts[kind] += 1
        if kind == "sent":
            self.sent_bytes += int(details[-1])
        self._hash.update(f"{event.time_s:.9f} {kind} {details!r}\n".encode())

    def digest(self) -> str:
        """BLAKE3 of all events so far, hex: equal for two runs that went alike."""
        return self._hash.hexdigest()
