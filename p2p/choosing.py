"""In which order peers are asked, of whom little is known. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from p2p.crowds import crowd_of
from p2p.host import Found, PeerId

T = TypeVar("T")


def in_drawn_order(
    found: Sequence[Found], source: random.Random, is_proven: Callable[[PeerId], bool]
) -> list[Found]:
    """Who is proven first; then strangers by lot, one of each household in turn.

    So neither to be in the directory before others is of use, nor to be there under many names.
    """
    proven = [each for each in found if is_proven(each.peer)]
    crowds: dict[str, list[Found]] = {}
    for each in found:
        if not is_proven(each.peer):
            crowds.setdefault(_crowd(each), []).append(each)
    drawn = [source.sample(crowd, len(crowd)) for crowd in crowds.values()]
    source.shuffle(drawn)
    return [*proven, *by_turns(*drawn)]


def by_turns(*lists: Sequence[T]) -> list[T]:
    """The first of each, then the second of each that has one, and so on."""
    longest = max(map(len, lists), default=0)
    return [each[at] for at in range(longest) for each in lists if at < len(each)]


def _crowd(found: Found) -> str:
    """Where it is said to be first."""
    words = found.addresses[0].split("/") if found.addresses else []
    try:
        return crowd_of(words[2])
    except (IndexError, ValueError):
        return ""
