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


_OF_GROUP = "group:"


def label_word(visibility: Visibility, group: str) -> str:
    """As a label is written. Args: group: whose it is if it is aggregate, "" of nobody's."""
    of_group = visibility is Visibility.AGGREGATE and group
    return f"{_OF_GROUP}{group}" if of_group else visibility.word


def parse_label(word: str) -> tuple[Visibility, str] | None:
    """The opposite: the label, and the group as it is written, "" where there is none.

    None where there is no such label.
    """
    group = word.removeprefix(_OF_GROUP)
    if group and group != word:
        return Visibility.AGGREGATE, group
    visibility = parse_visibility(word)
    return None if visibility is None else (visibility, "")


def tightened_words(words: Iterable[str]) -> list[str]:
    """Labels of a log as they are written, none looser than the one before; whose a group's are
    is not looked at. A word that is no label is private.
    """
    before, at, labels = Visibility.PUBLIC, Visibility.PUBLIC.word, list[str]()
    for word in words:
        asked, _ = parse_label(word) or (Visibility.PRIVATE, "")
        if asked >= before:
            before, at = asked, word if parse_label(word) else asked.word
        labels.append(at)
    return labels


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
