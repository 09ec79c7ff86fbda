"""Opening what a former process left: an index that can be trusted, or a new one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from glia.store.index import Index, IndexDamaged
from glia.store.recover import rebuild
from glia.store.schema import STATE, State, decode_state
from glia.store.segment import Segments

INDEX = "index"
NEW_INDEX = "index.new"  # what a rebuild that did not end leaves


def open_index(path: Path, segments: Segments) -> tuple[Index, State]:
    """The index of the store at `path`; built from the segments where there is none to trust.

    Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion, OSError.
    """
    shutil.rmtree(path / NEW_INDEX, ignore_errors=True)
    # Without CURRENT LevelDB would begin anew, with what it finds in its logs.
    if (path / INDEX / "CURRENT").is_file():
        try:
            index = Index(path / INDEX)
        except IndexDamaged:
            index = None
        state = _state_of(index) if index is not None else None
        if index is not None and state is not None:
            return index, state
        if index is not None:
            index.close()
    state = rebuild(path / NEW_INDEX, segments, {}, 1)
    shutil.rmtree(path / INDEX, ignore_errors=True)
    os.rename(path / NEW_INDEX, path / INDEX)
    return Index(path / INDEX), state


def _state_of(index: Index) -> State | None:
    """The state row of an index just opened; None where there is none to be had.

    Raises: StoreVersion; the index is closed, then.
    """
    try:
        value = index.get(STATE)
        return decode_state(value) if value is not None else None
    except IndexDamaged:
        return None
    except BaseException:
        index.close()
        raise
