"""Opening what a former process left: an index that can be trusted, or a new one."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from glia.graph.ids import BlockId
from glia.store.catalog import Catalog
from glia.store.dead import Dead
from glia.store.files import sync_directory
from glia.store.index import Index, IndexDamaged, finish_swap, swap_in
from glia.store.keys import (
    DEAD,
    QUARANTINE,
    STATE,
    USAGE,
    dead_range_of,
    name_at_end,
    segment_of,
)
from glia.store.plan import Cursor
from glia.store.recover import adopt_tail, rebuild
from glia.store.schema import (
    FORMAT_VERSION,
    Location,
    Span,
    State,
    check_version,
    decode_location,
    decode_number,
    decode_state,
    decode_usage,
)
from glia.store.segment import Segments

NEW_INDEX = "index.new"  # what a rebuild that did not end leaves,
COPY_OF_INDEX = "index.copy"  # and a copy
_INDEX = "index"
_SEGMENTS = "segments"
_FORMAT = "format"
_FORMAT_NAME = "glia-store"


def open_catalog(path: Path) -> tuple[Catalog, Cursor, set[int]]:
    """What is at `path`, made to agree; and where to write on, and segments that are missing.

    An index of version 1 is built again, as a damaged one is: then the store has version 2.
    Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion, OSError.
    """
    _check_format(path / _FORMAT)
    segments = Segments(path / _SEGMENTS)
    index, state = _open_index(path, segments)
    try:
        try:
            agreed = _agree(path, segments, index, state)
        except IndexDamaged:
            index.close()
            index, state = _build_index(path, segments, state.next_segment)
            agreed = _agree(path, segments, index, state)
    except BaseException:
        index.close()
        raise
    _write_format(path)
    return agreed


def _open_index(path: Path, segments: Segments) -> tuple[Index, State]:
    for name in (NEW_INDEX, COPY_OF_INDEX):
        shutil.rmtree(path / name, ignore_errors=True)
    finish_swap(path / _INDEX)
    # Without CURRENT LevelDB would begin anew, with what it finds in its logs.
    if (path / _INDEX / "CURRENT").is_file():
        try:
            index = Index(path / _INDEX)
        except IndexDamaged:
            index = None
        state = _state_of(index) if index is not None else None
        if index is not None and state is not None:
            return index, state
        if index is not None:
            index.close()
    return _build_index(path, segments, 1)


def _build_index(path: Path, segments: Segments, least_next: int) -> tuple[Index, State]:
    state, _ = rebuild(path / NEW_INDEX, segments, {}, least_next, may_be_torn=True)
    swap_in(path / NEW_INDEX, path / _INDEX)
    return Index(path / _INDEX), state


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


def _agree(
    path: Path, segments: Segments, index: Index, state: State
) -> tuple[Catalog, Cursor, set[int]]:
    catalog, missing = _read(path, segments, index, state)
    return catalog, _settle(catalog), missing


def _read(path: Path, segments: Segments, index: Index, state: State) -> tuple[Catalog, set[int]]:
    """A catalog of what index and directory say; and segments that the index alone knows."""
    on_disk = segments.on_disk()
    missing: set[int] = set()
    for key, value in index.each(USAGE):
        number = segment_of(key)
        usage = decode_usage(value, on_disk.get(number, 0))
        if usage is None:
            raise IndexDamaged("a row of the index cannot be one")
        if number in on_disk:
            segments.put(number, usage)
        else:
            missing.add(number)
    gone = {
        number: size  # its rows went before a crash
        for number, size in on_disk.items()
        if number <= state.segment and not segments.is_live(number)
    }
    bad: dict[BlockId, Location] = {}
    for key, value in index.each(QUARANTINE):
        where = decode_location(value)
        if where is not None:
            bad[BlockId(name_at_end(key))] = where
    spans: list[Span] = []
    for key, value in index.each(DEAD):
        place = dead_range_of(key)
        if place is not None:
            spans.append(Span(*place, decode_number(value)))
    return Catalog(path, segments, index, state, bad, Dead(segments, spans, gone)), missing


def _settle(catalog: Catalog) -> Cursor:
    """Finish what a crash cut in two; where the next group goes: on after a clean stop, else
    anew."""
    state, segments = catalog.state, catalog.segments
    catalog.dead.erase()
    on_disk = segments.on_disk()
    at_end = on_disk.get(state.segment, 0) == state.offset
    if not (state.clean and at_end and max(on_disk, default=0) <= state.segment):
        catalog.state = replace(state, clean=False)
        adopt_tail(catalog)
    state = catalog.state
    catalog.apply(catalog.draft(), replace(state, clean=False))
    if state.clean and segments.is_live(state.segment):
        return Cursor(state.segment, state.offset)
    return Cursor(state.next_segment, 0)


def _check_format(file: Path) -> None:
    """Raises: StoreVersion, OSError."""
    try:
        words = file.read_bytes()[:64].decode(errors="replace").split()
    except FileNotFoundError:
        return
    version = words[1] if len(words) == 2 and words[0] == _FORMAT_NAME else ""
    if version.isdecimal():
        check_version(int(version))


def _write_format(path: Path) -> None:
    """Say which version the store has, now that all of it has it. Raises: OSError."""
    text = f"{_FORMAT_NAME} {FORMAT_VERSION}\n".encode()
    file, new = path / _FORMAT, path / f"{_FORMAT}.new"
    if file.exists() and file.read_bytes() == text:
        return
    new.touch(mode=0o600)
    new.write_bytes(text)
    with open(new, "rb") as written:
        os.fsync(written.fileno())
    os.rename(new, file)
    sync_directory(path)
