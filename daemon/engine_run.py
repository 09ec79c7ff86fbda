"""A run at its engine, as what fetches for it sees it: how far it is, and where it may meet."""

from __future__ import annotations

from daemon.link import EngineLink


class EngineRun:
    """Begun or not yet.

    Attributes:
        num_done, num_tokens: of the prompt's tokens have K/V; 0 before the engine said so.
    """

    def __init__(self) -> None:
        self.num_done = self.num_tokens = 0
        self._link: EngineLink | None = None
        self._run_id = 0
        self._meets_at: int | None = None

    def begin(self, link: EngineLink, run_id: int) -> None:
        """An engine has it."""
        self._link, self._run_id = link, run_id
        if self._meets_at is not None:
            link.meet(run_id, self._meets_at)

    def meet(self, position: int) -> None:
        """From here on what the run wants is there."""
        self._meets_at = position
        if self._link is not None:
            self._link.meet(self._run_id, position)
