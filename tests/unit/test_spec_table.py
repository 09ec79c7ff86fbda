"""The plugin that lists rows and faults."""

from __future__ import annotations

from tests.spec_table import read_checklist, table


def test_the_checklist_has_every_row_and_fault() -> None:
    names = list(read_checklist())
    assert names == [str(n) for n in range(1, 71)] + [f"F{n}" for n in range(1, 41)]


def test_the_table_tells_rows_with_and_without_tests() -> None:
    lines = table({"1": "one", "2": "two", "F1": "x"}, {"1": {"a::b"}, "2": set(), "F1": set()})
    assert lines == [
        "   1  one",
        "        a::b",
        "   2  two  -- no test",
        "  F1  x  -- no test",
        "rows: 1 of 2 have tests",
        "rows without any: 2",
        "faults: 0 of 1 have tests",
        "faults without any: F1",
    ]
