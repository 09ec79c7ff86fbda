"""The spec pages: their parts, their limits, and examples that print what they say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import ROOT

PAGES = sorted(
    (ROOT / "glia/spec").glob("[0-9]*.md"), key=lambda page: int(page.stem.split("-")[0])
)
PARTS = (
    "Purpose",
    "Non-goals",
    "Layout",
    "Fields",
    "Limits",
    "Errors",
    "Example",
    "Vectors",
    "Changes",
)
COMMAND = re.compile(r"^    \$ python (-c '.*')\n    (.*)$", re.MULTILINE)
EXAMPLES = [
    pytest.param(command, output, id=f"{page.stem} {number}")
    for page in PAGES
    for number, (command, output) in enumerate(COMMAND.findall(page.read_text()))
]


def test_there_is_a_page_for_each_format() -> None:
    assert [page.stem[:2] for page in PAGES[:6]] == ["0-", "1-", "2-", "3-", "4-", "5-"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem[0] in "12345689"], ids=str)
def test_a_page_has_all_its_parts(page: Path) -> None:
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
    assert [heading for heading in headings if heading in PARTS] == list(PARTS)


@pytest.mark.parametrize(("command", "output"), EXAMPLES)
def test_an_example_prints_what_the_page_says(command: str, output: str) -> None:
    result = subprocess.run(
        [sys.executable, *shlex.split(command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout + result.stderr).strip().splitlines()[-1] == output


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 10
