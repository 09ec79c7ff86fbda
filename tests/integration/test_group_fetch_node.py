"""What one gliad computed for a group another member takes from it, and nobody else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from glia.store.published import Published
from tests.gliad_parts import Gliad
from tests.integration.test_resume_from_peer import (
    NUM_TOKENS,
    SHORT,
    Asked,
    start,
    tiny_gliads,
)
from tests.node_parts import until
from tests.pace import PATIENCE_S

TEAM = ("--group", "team")


def taken(asked: Asked, node: Gliad) -> Any:
    """Ask in the group until it comes from members: on a busy machine they may be too slow."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = asked.of(node, *TEAM)
        if found["usage"]["cached"]["peers"] >= 0.9 * NUM_TOKENS:
            return found
        assert time.monotonic() < deadline_s, found
        node("forget", found["conversation"], "--yes")


def shown(node: Gliad, num_windows: int) -> None:
    """Return when it shows its group so many windows."""
    until(lambda: node.counted("group_windows_published") >= num_windows)


@pytest.mark.spec(49)
def test_what_a_member_computed_another_takes_and_nobody_else(tmp_path: Path) -> None:
    asked, short = Asked(tmp_path, 1), Asked(tmp_path, 2, SHORT)
    with tiny_gliads(3, tmp_path) as (ada, bob, cyd):
        home = start(ada)
        ada("group", "create", "team")
        short.of(ada, *TEAM)
        first = asked.of(ada, *TEAM)
        assert first["usage"]["cached"]["peers"] == 0
        shown(ada, NUM_TOKENS // 16 + SHORT // 16)

        start(bob, home)
        ada("grant", bob.json("id")["neuron"], *TEAM)
        bob("group", "join", home)
        second = taken(asked, bob)
        assert second["token_ids"] == first["token_ids"]
        assert second["exact"] is True
        assert bob.counted("group_windows_fetched") >= NUM_TOKENS // 16 - 2
        assert ada.counted("group_streams") >= 2
        assert ada.counted("group_streams_refused") == 0
        shown(bob, NUM_TOKENS // 16)

        start(cyd, home)
        short.of(cyd, "--public")  # loads the model
        alone = asked.of(cyd, "--public")
        assert alone["usage"]["cached"]["peers"] == 0
        assert alone["token_ids"] == first["token_ids"]
        assert cyd.counted("prompts_searched") >= 1
        for node in (ada, bob):
            node("stop")
            public = Published(node.data_dir / "published")
            try:
                assert public.stats().num_windows == 0
            finally:
                public.close()
