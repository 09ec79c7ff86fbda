"""What one gliad computed for a group another member takes from it, and nobody else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from glia.client import Client
from glia.local.messages import Generated
from glia.local.values import MessageValue, TurnValue
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
from tests.tiny_node import prompt

COUNTERS = ("windows_published", "group_windows_published")
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


def _mixed(ada: Gliad, bob: Gliad) -> None:
    """A public beginning comes as such; behind it what is the group's comes from the group."""
    tokens, half = prompt(NUM_TOKENS, 3), NUM_TOKENS // 2
    said = [
        MessageValue("system", None, 0, half, "public"),
        MessageValue("user", None, half, NUM_TOKENS, "group:team"),
    ]
    in_public, in_group = (ada.counted(each) for each in COUNTERS)
    first = _generated(ada, tokens, said)
    until(lambda: ada.counted(COUNTERS[0]) >= in_public + half // 16)
    until(lambda: ada.counted(COUNTERS[1]) >= in_group + half // 16)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = _generated(bob, tokens, said)
        assert found.tokens == first.tokens
        if found.usage.cached.peers >= 0.9 * NUM_TOKENS:
            return
        assert time.monotonic() < deadline_s, found
        bob("forget", found.conversation, "--yes")


def _generated(node: Gliad, tokens: Sequence[int], said: Sequence[MessageValue]) -> Generated:
    with Client.connect(node.data_dir) as client:
        turn = TurnValue("", 0, list(said))
        done = list(client.generate("tiny", tokens, max_tokens=4, turn=turn))[-1]
    assert isinstance(done, Generated)
    return done


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

        _mixed(ada, bob)
        start(cyd, home)
        short.of(cyd, "--public")  # loads the model
        alone = asked.of(cyd, "--public")
        assert alone["usage"]["cached"]["peers"] == 0
        assert alone["token_ids"] == first["token_ids"]
        assert cyd.counted("prompts_searched") >= 1
        gone = ada.json("publish", first["conversation"], "--withdraw")
        assert gone["num_windows"] >= NUM_TOKENS // 16
        for node in (ada, bob):
            node("stop")
            public = Published(node.data_dir / "published")
            try:
                assert public.stats().num_windows == NUM_TOKENS // 2 // 16
            finally:
                public.close()
