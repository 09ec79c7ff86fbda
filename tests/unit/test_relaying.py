"""What came from a peer that is gone since can be had of who took it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from daemon.announcer import Announcer
from daemon.egress import Egress
from daemon.hearing import Hearing
from glia.graph.boundaries import announced, pairs
from p2p.asking import Asking
from p2p.messages import FIND
from p2p.testing.internet import Internet
from simulations.virtual.announcing import now_s
from tests.exchange_parts import fetch, question_of
from tests.resolver_parts import Node, chain_of, links_of, run


@pytest.mark.spec(33)
def test_published_blocks_outlive_who_published_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("first", chain)
        resolved = await node.resolve(chain)
        assert resolved.num_windows == 40
        await resolved.until_relayed()
        await node.memory.flush(chain.window_ids)
        net.kill("first")
        peering = node.peering
        egress = Egress(peering.published, node.store)
        peering.serve(egress)
        stranger = net.host("stranger")
        await stranger.connect(peering.host.addresses()[0])
        kept: list[bytes] = []
        announcer = Announcer(
            peering,
            Hearing(peering, now_s),
            egress.has_window,
            lambda: [chain.model_id],
            random.Random(1),
            keep=kept.append,
            replicas=3,
            now_s=now_s,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(announcer.run)
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
        for number in announced(40):
            found = await stranger.directory.providers(chain.keys[number - 1], 8)
            assert peering.host.peer_id in {each.peer for each in found}
        assert kept == [chain.tip]  # there are too few copies
        stream = await stranger.open(peering.host.peer_id, FIND)
        keys = pairs(chain.keys, range(1, 41))
        (best, *_) = await Asking(stream).find(question_of(chain), keys, want_records=False)
        assert (best.num_windows, best.tip) == (40, chain.tip)
        assert set(best.links) == set(links_of(chain))
        got = await fetch(stranger, chain, [peering.host])
        assert got.is_whole
        got.taken.assert_prefix_of(chain, 40)

    run(monkeypatch, tmp_path, main)
