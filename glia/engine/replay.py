"""A log is run again: its tokens are given, and what the model would have chosen is told."""

from __future__ import annotations

from collections.abc import Sequence as Several

from glia.engine.sampler import Sampler
from glia.graph.answers import ChosenSpan


class Replay:
    """How far a log has been run again; owned by its sequence.

    Args:
        log: all its tokens.
        spans: those that were chosen, in order.
    """

    def __init__(self, log: Several[int], spans: Several[ChosenSpan]) -> None:
        self._log = log
        self._spans = spans
        self._num_over = 0

    @property
    def is_over(self) -> bool:
        """Whether no more is to be chosen."""
        return self._num_over == len(self._spans)

    @property
    def num_asked(self) -> int:
        """Tokens before the first that is chosen."""
        return self._spans[0].start if self._spans else len(self._log)

    def sampler(self) -> Sampler:
        """One that draws as the span that comes next was drawn, from its start."""
        return Sampler(self._spans[self._num_over].sampling)

    def go_on(self, tokens: list[int]) -> bool:
        """Behind `tokens` put the one that was chosen there, and what was asked next.

        Returns: whether another span begins behind these.
        """
        at = len(tokens) + 1
        ends = at == self._spans[self._num_over].end
        if ends:
            self._num_over += 1
            at = len(self._log) if self.is_over else self._spans[self._num_over].start
        tokens += self._log[len(tokens) : at]
        return ends and not self.is_over
