"""Each guard of p2p/spec/guards.md: the library breaks without it, and holds with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.libp2p_nodes import guarded_node
from tests.libp2p_scenarios import SCENARIOS

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def broken() -> list[str]:
    """The scenarios that the library does not withstand as it is."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.libp2p_scenarios"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_guarded_node_withstands_it(name: str) -> None:
    async def main() -> None:
        with trio.fail_after(90):
            assert await SCENARIOS[name](guarded_node)

    trio.run(main)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_library_alone_does_not(name: str, broken: list[str]) -> None:
    assert name in broken
