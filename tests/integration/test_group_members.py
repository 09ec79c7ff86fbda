"""A group of three real nodes, one of whom is removed, and one who relays what it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gliad_parts import Gliad
from tests.integration.test_group_fetch_node import TEAM, shown, taken
from tests.integration.test_resume_from_peer import (
    NUM_TOKENS,
    SHORT,
    Asked,
    start,
    tiny_gliads,
)
from tests.node_parts import until

WINDOWS = NUM_TOKENS // 16


def _joins(node: Gliad, ada: Gliad, home: str) -> None:
    start(node, home)
    ada("grant", node.json("id")["neuron"], *TEAM)
    node("group", "join", home)


@pytest.mark.fault("F30")
@pytest.mark.spec(49)
def test_who_is_removed_takes_nothing_more_and_who_stays_goes_on(tmp_path: Path) -> None:
    short, first, second = (
        Asked(tmp_path, seed, num) for seed, num in ((1, SHORT), (2, NUM_TOKENS), (3, NUM_TOKENS))
    )
    with tiny_gliads(4, tmp_path) as (ada, bob, cyd, dan):
        home = start(ada)
        ada("group", "create", "team")
        short.of(ada, *TEAM)
        said = first.of(ada, *TEAM)
        shown(ada, WINDOWS)
        for node in (bob, cyd):
            _joins(node, ada, home)
            assert taken(first, node)["token_ids"] == said["token_ids"]

        ada("revoke", bob.json("id")["neuron"], *TEAM)
        assert ada.json("group", "show", "team")["epoch"] == 2
        later = second.of(ada, *TEAM)
        shown(ada, 2 * WINDOWS)
        cyd("group", "join", home)  # as it does by itself every 45 s
        assert cyd.json("group", "show", "team")["epoch"] == 2
        had = taken(second, cyd)
        assert had["token_ids"] == later["token_ids"]

        # His token has not run out, and his node believes itself a member still.
        refused = {node: node.counted("group_streams_refused") for node in (ada, cyd)}
        (mine,) = bob.json("group", "list")
        assert (mine["epoch"], mine["ops"]) == (1, ["fetch"])
        alone = second.of(bob, *TEAM)
        assert alone["usage"]["cached"]["peers"] == 0
        assert alone["token_ids"] == later["token_ids"]
        assert ada.counted("group_streams_refused") > refused[ada]
        # What he had been given he has, until he leaves.
        assert bob.json("group", "leave", "team")["num_windows"] >= WINDOWS
        assert bob.json("group", "list") == []

        start(dan, home)
        assert first.of(dan, "--public")["usage"]["cached"]["peers"] == 0
        assert dan.counted("group_windows_fetched") == 0

        ada("grant", dan.json("id")["neuron"], *TEAM, "--ops", "relay")
        dan("group", "join", home)
        (relayed,) = dan.json("group", "list")
        assert (relayed["role"], relayed["epoch"]) == ("relay", 0)
        until(lambda: dan.counted("group_windows_relayed") >= 2 * WINDOWS)
        cyd("peers", "add", dan.address)
        cyd("forget", had["conversation"], "--yes")
        ada.kill()
        assert taken(second, cyd)["token_ids"] == later["token_ids"]
        assert dan.counted("group_streams") > 0
        gone = dan.json("group", "leave", "team")
        assert gone["num_windows"] >= 2 * WINDOWS
