"""Where a chain is announced, and which of its prefix keys are asked for. Pure.

A chain is announced at window counts 16, 32, 64, ... and at its last public window. Whoever
shares n windows with it shares the boundary below n; so a getter asks for the boundaries of
its own prompt and, as it may share more than a boundary, for every key after the last. A chain
that ends below the first boundary shares none: so it asks for every key before that, too.
See spec/11-finding.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glia.graph.ids import PrefixKey

FIRST_BOUNDARY = 16
MAX_KEYS = 1_500  # of one request: fits a control frame of 64 KiB


def boundaries(num_windows: int) -> list[int]:
    """16, 32, 64, ... up to `num_windows`, which may or may not be one."""
    found = []
    count = FIRST_BOUNDARY
    while count <= num_windows:
        found.append(count)
        count *= 2
    return found


def announced(num_windows: int) -> list[int]:
    """Window counts at which a chain of so many public windows is announced."""
    found = boundaries(num_windows)
    return found if num_windows in (0, *found[-1:]) else [*found, num_windows]


def asked(num_windows: int) -> list[int]:
    """Window counts whose keys are asked for first, shortest first; the last one is among them."""
    found = boundaries(num_windows)
    last = found[-1] if found else 0
    known = [*(range(1, FIRST_BOUNDARY) if found else ()), *found]
    return known + between(last, num_windows + 1, MAX_KEYS - len(known))


def between(low: int, high: int, most: int = MAX_KEYS) -> list[int]:
    """Counts above `low` and below `high`, evenly thinned to `most`, the largest among them.

    So a getter refines: a peer that has the key at `low` and not at `high`, the next count it
    was asked for, is asked again for what lies between.
    """
    num = high - low - 1
    if num <= most:
        return list(range(low + 1, high))
    return [low + num * step // most for step in range(1, most + 1)]


def pairs(keys: Sequence[PrefixKey], counts: Iterable[int]) -> list[tuple[int, PrefixKey]]:
    """Counts with their keys, as they are asked for. Args: keys: of windows 1, 2, 3, ..."""
    return [(count, keys[count - 1]) for count in counts]
