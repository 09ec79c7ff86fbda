"""Who may read: labels that only get stricter along a chain (DESIGN C18).

A public span after a private one attends to private tokens: its K/V would leak them. So
what may be published is the leading public span, and a label never loosens what came before.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Visibility(IntEnum):
    """From loosest to strictest."""

    PUBLIC = 1
    AGGREGATE = 2
    PRIVATE = 3

    @property
    def word(self) -> str:
        """As it is written in messages and files."""
        return self.name.lower()


def parse_visibility(word: str) -> Visibility | None:
    """The label of that word, None where there is no such label."""
    return next((label for label in Visibility if label.word == word), None)


def tightened(before: Visibility, asked: Iterable[Visibility]) -> list[Visibility]:
    """Labels for what follows something labelled `before`: as asked, never looser than before."""
    labels = []
    for label in asked:
        before = max(before, label)
        labels.append(before)
    return labels
