"""Why relays and AutoNAT are out (p2p/spec/reachability.md): fails with a libp2p that is mended."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.node_parts import ROOT
from tests.relay_trials import TRIALS


@pytest.fixture(scope="module")
def failed() -> list[str]:
    """The trials that the library, as it is, does not stand."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.relay_trials"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", TRIALS)
def test_what_a_relay_needs_is_not_in_the_library(name: str, failed: list[str]) -> None:
    assert name in failed
