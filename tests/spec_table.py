"""Pytest plugin: `pytest --spec-table` lists the checklist's rows and the fault tests with
their tests, and which have none. Nothing is run.

Rows and faults with their titles stand in checklist.tsv; tests name theirs with
`@pytest.mark.spec(7, 11)` and `@pytest.mark.fault("F3")`. A name that is not in the
list is an error, with or without the option.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKLIST = Path(__file__).with_name("checklist.tsv")


def read_checklist() -> dict[str, str]:
    """Name (a row's number, or F and a number) to title, in order."""
    lines = CHECKLIST.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines)


def names_of(item: pytest.Item) -> Iterator[str]:
    """Rows and faults that a test is marked with."""
    for marker in ("spec", "fault"):
        for mark in item.iter_markers(marker):
            yield from map(str, mark.args)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--spec-table", action="store_true", help="list checklist rows and faults with their tests"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    titles = read_checklist()
    tests: dict[str, set[str]] = {name: set() for name in titles}
    for item in items:
        for name in names_of(item):
            if name not in tests:
                raise pytest.UsageError(f"{item.nodeid}: no row or fault {name!r} in checklist.tsv")
            tests[name].add(item.nodeid.split("[", 1)[0])
    config.stash[_TESTS] = tests


_TESTS = pytest.StashKey[dict[str, set[str]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.getoption("--spec-table"):
        return None
    for line in table(read_checklist(), session.config.stash[_TESTS]):
        print(line)
    return True


def table(titles: dict[str, str], tests: dict[str, set[str]]) -> list[str]:
    """The lines that --spec-table prints."""
    lines: list[str] = []
    for name, title in titles.items():
        lines.append(f"{name:>4}  {title}" if tests[name] else f"{name:>4}  {title}  -- no test")
        lines.extend(f"        {test}" for test in sorted(tests[name]))
    for kind, members in (
        ("rows", [name for name in titles if name.isdigit()]),
        ("faults", [name for name in titles if not name.isdigit()]),
    ):
        without = [name for name in members if not tests[name]]
        lines.append(f"{kind}: {len(members) - len(without)} of {len(members)} have tests")
        lines.append(f"{kind} without any: {' '.join(without) or 'none'}")
    return lines
