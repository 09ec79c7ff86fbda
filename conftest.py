"""Found by pytest from anywhere; the plugins themselves are in tests/."""

import os
import signal

import pytest

# Before torch is imported anywhere: OpenMP reads it once, and threads that spin while they
# wait starve the engines under test on a small machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Whom a shell starts in the background ignores it, and so would what tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.spec_table"]


@pytest.hookimpl(trylast=True)  # behind the shuffling
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes goes first: two workers then end at about the same time."""
    items.sort(key=lambda item: "/integration/" not in item.nodeid)
