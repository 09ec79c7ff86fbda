"""The extent allocator against a set of 64-byte cells."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.extents import ALIGNMENT, Extents, aligned

CELLS = 64


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 20), st.data()), max_size=80))
def test_agrees_with_a_set_of_cells(steps: list[tuple[bool, int, st.DataObject]]) -> None:
    extents = Extents(CELLS * ALIGNMENT)
    free = set(range(CELLS))
    used: list[tuple[int, int]] = []
    for allocate, cells, data in steps:
        if allocate or not used:
            offset = extents.allocate(cells * ALIGNMENT)
            if offset is None:
                assert not _run_of(free, cells)
                continue
            taken = set(range(offset // ALIGNMENT, offset // ALIGNMENT + cells))
            assert taken <= free
            free -= taken
            used.append((offset // ALIGNMENT, cells))
        else:
            start, size = used.pop(data.draw(st.integers(0, len(used) - 1)))
            part = data.draw(st.integers(1, size))  # a part may be given back before the rest
            extents.free(start * ALIGNMENT, part * ALIGNMENT)
            free |= set(range(start, start + part))
            if part < size:
                used.append((start + part, size - part))
        assert _cells(extents.holes()) == free
        assert _is_coalesced(extents.holes())
        assert extents.used_bytes == (CELLS - len(free)) * ALIGNMENT


def test_refuses_what_is_not_a_range() -> None:
    extents = Extents(CELLS * ALIGNMENT)
    for offset, size in ((-64, 64), (0, 0), (1, 64), (0, 65), (0, CELLS * ALIGNMENT + 64)):
        with pytest.raises(ValueError, match="not"):
            extents.free(offset, size)
    with pytest.raises(ValueError, match="cannot be"):
        extents.allocate(65)
    with pytest.raises(ValueError, match="cannot be"):
        Extents(100)


def test_the_smallest_hole_that_fits_is_taken() -> None:
    extents = Extents(10 * ALIGNMENT)
    offsets = [extents.allocate(ALIGNMENT) for _ in range(10)]
    assert offsets == [i * ALIGNMENT for i in range(10)]
    extents.free(0, 3 * ALIGNMENT)
    extents.free(5 * ALIGNMENT, ALIGNMENT)
    assert extents.allocate(ALIGNMENT) == 5 * ALIGNMENT
    assert extents.allocate(4 * ALIGNMENT) is None


def test_rounding_up() -> None:
    assert [aligned(n) for n in (1, 64, 65)] == [64, 64, 128]


def _run_of(free: set[int], cells: int) -> bool:
    return any(all(at + i in free for i in range(cells)) for at in free)


def _cells(holes: list[tuple[int, int]]) -> set[int]:
    return {c for at, size in holes for c in range(at // ALIGNMENT, (at + size) // ALIGNMENT)}


def _is_coalesced(holes: list[tuple[int, int]]) -> bool:
    return all(a + size < b for (a, size), (b, _) in pairwise(holes))
