"""What is published and was dropped here is fetched again from peers when it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from glia.graph.link import parse_link
from p2p.testing.internet import Internet
from tests.resolver_parts import Node, chain_of, links_of, run
from tests.store_parts import sealed


@pytest.mark.spec(30)
def test_a_published_block_that_l2_dropped_is_fetched_again_on_demand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        node.store.put(sealed(chain))
        node.peering.published.put(chain.records, [parse_link(each) for each in links_of(chain)])
        await node.meets("peer", chain)
        resolved = await node.begin(chain)
        await resolved.end()
        assert resolved.value().num_tokens == 0  # all of it is here
        node.store.forget(chain.window_ids)  # as eviction does, and L1 never had it
        assert await node.matched(chain) == 0
        assert (await node.resolve(chain)).num_windows == 40
        await node.memory.flush(chain.window_ids)
        for record, particles in zip(chain.records, chain.particles, strict=True):
            assert [node.store.read_block(name) for name in record.blocks] == list(particles)

    run(monkeypatch, tmp_path, main)
