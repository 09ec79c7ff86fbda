"""Which tokens of a log a model chose, and how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from glia.graph.sampling import Sampling


class Span(Protocol):
    """Tokens `start` to `end` of a log."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ChosenSpan:
    """Tokens `start` to `end` of a log, drawn one after the other by a sampler of their own."""

    start: int
    end: int
    sampling: Sampling


def are_in_order(spans: Iterable[Span], num_tokens: int) -> bool:
    """Whether they can be chosen again: none is empty or first, none begins before one ends."""
    at = 1
    for span in spans:
        if not at <= span.start < span.end <= num_tokens:
            return False
        at = span.end
    return True
