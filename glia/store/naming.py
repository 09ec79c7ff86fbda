"""From a window that was written to the rows that name it."""

from __future__ import annotations

from glia.graph.encrypted import keys_of
from glia.store.draft import Draft
from glia.store.keys import block_key, prefix_key_of, window_key
from glia.store.order import enter
from glia.store.plan import Named


def name_window(draft: Draft, named: Named, tick: int, *, sure: bool = False) -> bool:
    """Rows of a window and its new blocks, and its group counted with its segment.

    Args:
        tick: the use that storing is, for a window that was not stored.
        sure: it is known that the new blocks have no rows yet.
    Returns: whether the window was not stored before.
    Raises: IndexDamaged.
    """
    keys = list(map(block_key, named.fresh))
    before = [None] * len(keys) if sure else draft.get_many(keys)
    for key, old, where in zip(keys, before, named.fresh.values(), strict=True):
        draft.replace(key, old, where.encode())
    name, row = named.record.window_id, named.row
    is_new = draft.get(window_key(name)) is None
    if is_new:
        draft.add(window_key(name), row.encode())
        for prefix_key in keys_of(named.record, row.prefix_key):
            draft.add(prefix_key_of(prefix_key, name), b"")
        enter(draft, name, named.record.prev, tick)
    else:
        draft.put(window_key(name), row.encode())
    segment, offset, num = row.groups[-1]
    draft.grow(segment, offset + num)
    return is_new
