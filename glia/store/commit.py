"""Group commit: whoever comes while a commit is running shares the next one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glia.errors import GliaError, StoreBroken
from glia.store.base import WindowDown


@dataclass(slots=True, eq=False)
class Ticket:
    """One caller's windows and what became of them."""

    windows: Sequence[WindowDown]
    done: bool = False
    error: GliaError | None = None


class CommitQueue:
    """Callers wait for the lock; the first to get it commits for all who wait.

    So a put that finds the disk idle goes at once, and puts that find it busy are
    written together, with one data sync and one index sync.
    """

    def __init__(self, lock: threading.RLock, commit: Callable[[Sequence[Ticket]], None]) -> None:
        """Args: commit: raises, or puts an error into the tickets that failed."""
        self._lock = lock
        self._commit = commit
        self._waiting: deque[Ticket] = deque()

    def submit(self, windows: Sequence[WindowDown]) -> None:
        """Returns when the windows are durable. Raises: what became of the ticket."""
        ticket = Ticket(windows)
        self._waiting.append(ticket)
        with self._lock:
            if not ticket.done:
                self._run()
        if ticket.error is not None:
            raise ticket.error

    def _run(self) -> None:
        tickets: list[Ticket] = []
        while self._waiting:
            tickets.append(self._waiting.popleft())
        error: GliaError | None = StoreBroken("the writer stopped in the middle")
        try:
            self._commit(tickets)
            error = None
        except GliaError as caught:
            error = caught
        finally:
            for ticket in tickets:
                ticket.done = True
                ticket.error = ticket.error or error
