"""Which windows could be computed here again, to the byte (DESIGN C11).

A window follows from the model, the numerics class, its tokens and everything before it:
so a chain is reproducible up to the first window of which one of these is not at hand.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from daemon.attachments import Computable
from glia.errors import MalformedParticle, NotFound
from glia.graph.chain import Get, walk
from glia.graph.ids import WindowId, genesis_window
from glia.graph.window import WindowRecord


def is_reproducible(window_id: WindowId, get: Get, computable: Container[Computable]) -> bool:
    """Whether model, class, tokens and all windows before this one are at hand."""
    try:
        chain = walk(window_id, get)
    except (NotFound, MalformedParticle):
        return False
    return all(_kind(record) in computable for record in chain)


def find_unreproducible(
    tips: Iterable[WindowId],
    get: Get,
    computable: Container[Computable],
    good: set[WindowId],
    bad: set[WindowId],
) -> None:
    """Sort the windows of chains: into `good`, what could be computed again; else into `bad`.

    What is in one of them already is not looked at again. What stands behind a hole is
    neither: nobody can use it, unless the hole is computed again, and then it can be, too.
    """
    for tip in tips:
        back: list[WindowRecord] = []
        at: WindowId | None = tip
        while at is not None and at not in good and at not in bad:
            record = get(at)
            if record is None:
                break
            back.append(record)
            is_first = record.before == genesis_window(record.model_id, record.profile_id)
            at = None if is_first else record.before
        else:
            is_good = at is None or at in good
            for record in reversed(back):
                is_good = is_good and _kind(record) in computable
                (good if is_good else bad).add(record.window_id)


def _kind(record: WindowRecord) -> Computable:
    return Computable(record.model_id, record.profile_id, record.numerics_class)
