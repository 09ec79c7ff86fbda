"""Numerics classes: how K and V were computed, and what may stand on what.

See spec/13-numerics.md. A class is compared byte for byte; that of the CPU reference is known
to everybody, every other is a name that only engines of that class give.
"""

from __future__ import annotations

CANONICAL = "canonical"


def exact_with(own: str) -> tuple[str, ...]:
    """The classes that are exact to an engine of a class, its own first.

    What is canonical continues nothing but what is.
    """
    return (own,) if own == CANONICAL else (own, CANONICAL)


def may_continue(numerics_class: str, before: str) -> bool:
    """Whether a window of a class may follow one of another."""
    return numerics_class != CANONICAL or before == CANONICAL
