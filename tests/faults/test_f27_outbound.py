"""F27: of mixed conversations nothing that is private leaves the node, whoever asks for it.

Everything is real but the wires and the engine (simulations/scenarios/privacy.py): labels, log,
publisher, announcer, resolver, egress, provider. What is logged and counted is looked at here.
"""

from __future__ import annotations

import json
import logging
import re

import pytest

from daemon.link_calls import _links
from glia.local import messages as m
from p2p.testing.road import Link
from simulations.scenarios.privacy import Overheard, mixed, tell
from simulations.virtual.gliad import Neighbourhood, in_neighbourhood
from simulations.virtual.tap import found_in
from tests.node_parts import FULL

NUM_CONVERSATIONS = 1_000 if FULL else 40


@pytest.mark.spec(33)
@pytest.mark.spec(47)
@pytest.mark.spec(50)
@pytest.mark.fault("F27")
def test_nothing_private_leaves_the_node(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said, secrets = mixed(1, NUM_CONVERSATIONS, 27)
    texts: list[str] = []

    async def main(world: Neighbourhood) -> Overheard:
        heard = await tell(world, said, secrets)
        peering = world.gliads[0].peering
        counters = peering.counts()
        assert counters["announce_backlog"] == 0
        assert heard.out.kinds["provide"] == 2 * counters["announced"] > 0
        links = _links(peering, m.Links(1))
        texts.extend([json.dumps(counters), repr(links), repr(peering.ledger.entries())])
        return heard

    heard = in_neighbourhood(27, main, Link())
    assert heard.out.kinds["providers"] > 0  # prompts were looked up
    assert not heard.told_early  # all of it was held
    print(f"f27_private_in_{len(heard.out.bytes)}_bytes", len(heard.leaked), 0)
    assert not heard.leaked
    assert len(heard.seen) > 0.8 * len(secrets.shown)  # the search finds what is there
    said_aloud = " ".join([*texts, caplog.text])
    hexes = {name.hex() for name in secrets.private}
    words = re.findall(r"[0-9a-f]{16,}", said_aloud)
    assert not {w[at : at + 16] for w in words for at in range(len(w) - 15)} & hexes
    assert not {int(w) for w in re.findall(r"\d{7,10}", said_aloud)} & secrets.private_tokens
    assert not found_in(said_aloud.encode("utf-8", "surrogateescape"), secrets.private)
