"""What peers have of a public prompt is fetched, if that is sooner; no other is asked about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daemon.binding import Binding
from glia.graph.ids import BlockId
from glia.graph.link import parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.local.messages import Generated
from glia.local.values import CachedValue, UsageValue
from p2p.deciding import LEAST_S, budget_s
from p2p.host import PeerId, Stream
from p2p.messages import FIND
from p2p.testing.internet import Internet
from tests.builders import CLASS, Chain, make_chain, make_profile
from tests.resolver_parts import (
    SIGNER,
    WINDOW_S,
    Main,
    Node,
    chain_of,
    head,
    links_of,
    run,
)
from tests.store_parts import sealed

Run = Callable[[Main], None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return lambda main: run(monkeypatch, tmp_path, main)


def test_all_windows_come_from_a_peer_and_are_offered_to_others(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("peer", chain)
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows, resolved.num_tokens) == ("", 40, 640)
        assert await node.matched(chain) == 40
        assert set(resolved.timings_ms) == {"find", "fetch"}
        assert node.told
        assert all(what == "fetching" and total == 640 for what, _, total in node.told)
        await resolved.until_relayed()
        published = node.peering.published
        assert published.record(chain.tip) == chain.records[-1].encoding
        assert set(published.chain_links(chain.tip)) == set(links_of(chain))
        (entry,) = [entry for _, entry in node.peering.ledger.entries()]
        assert (entry.blocks_in, entry.num_bad) == (80, 0)
        assert entry.models == [chain.model_id.hex()]
        assert all(published.foreign.flags(chain.window_ids))
        assert [(each.blocks, each.end) for each in resolved.sources] == [(80, "done")]
        again = await node.resolve(chain)
        assert (again.why, again.num_windows, again.timings_ms) == ("", 0, {})
        assert node.counters["prompts_searched"] == 1

    world(main)


@pytest.mark.spec(36)
@pytest.mark.parametrize("num_public", [0, 15])
def test_of_a_prompt_without_a_public_window_nobody_hears(world: Run, num_public: int) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        asked: list[str] = []
        await node.meets("peer", chain)
        open_stream = node.peering.host.open

        async def heard(peer: PeerId, protocol: str) -> Stream:
            asked.append(protocol)
            return await open_stream(peer, protocol)

        node.peering.host.open = heard  # type: ignore[method-assign]
        resolved = await node.resolve(chain, num_public)
        assert (resolved.why, resolved.num_windows) == ("private", 0)
        assert not asked
        assert (await node.resolve(chain, 400)).num_windows == 25  # so many are public
        assert FIND in asked

    world(main)


def test_the_keys_of_private_windows_are_not_asked_for(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        offer = await node.meets("peer", chain)
        asked: set[bytes] = set()
        match = offer.match

        def heard(model, profile, keys):  # type: ignore[no-untyped-def]
            asked.update(key for _, key in keys)
            return match(model, profile, keys)

        offer.match = heard  # type: ignore[method-assign]
        await node.resolve(chain, 20 * 16 + 15)
        assert asked
        assert asked <= set(chain.keys[:20])

    world(main)


def test_the_last_token_is_never_asked_for(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20)
        await node.meets("peer", chain)
        assert (await node.resolve(chain, more=0)).num_windows == 19

    world(main)


def test_what_is_here_is_not_fetched_again(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        node.store.put(sealed(chain, range(30)))
        offer = await node.meets("peer", chain)
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows) == ("", 10)
        assert offer.num_reads == 20
        flags = node.peering.published.foreign.flags(chain.window_ids)
        assert flags == [False] * 30 + [True] * 10
        assert await node.matched(chain) == 40
        await resolved.until_relayed()
        assert node.peering.published.record(chain.records[0].window_id) is not None

    world(main)


def test_what_lies_between_the_keys_is_found_too(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        long = chain_of(120)
        short = head(long, 27)
        await node.meets("peer", short)
        resolved = await node.resolve(long)
        assert (resolved.why, resolved.num_windows) == ("nobody", 27)
        assert await node.matched(long) == 27

    world(main)


def test_a_chain_that_is_shorter_than_the_first_boundary_is_found_too(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        long = chain_of(120)
        await node.meets("peer", head(long, 11))
        assert (await node.resolve(long)).num_windows == 11
        assert await node.matched(long) == 11

    world(main)


@pytest.mark.parametrize("kind", ["none", "of another", "no first", "flipped"])
def test_a_chain_that_nobody_attests_is_not_taken(world: Run, kind: str) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        links = links_of(chain)
        links = {
            "none": (),
            "of another": links_of(chain_of(40, seed=1)),
            "no first": links[:-1],
            "flipped": (*links[:-1], links[-1][:-1] + bytes([links[-1][-1] ^ 1])),
        }[kind]
        (await node.meets("peer", chain)).links = links
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows) == ("nobody", 0)
        assert node.counters["chains_unattested"] > 0
        assert not any(entry.num_bad for _, entry in node.peering.ledger.entries())

    world(main)


def test_a_part_of_a_span_is_proved_by_what_follows(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        long = chain_of(40)
        part = head(long, 37)
        offer = await node.meets("peer", long)
        resolved = await node.resolve(part)
        assert (resolved.why, resolved.num_windows, offer.num_reads) == ("", 37, 74)
        await resolved.until_relayed()
        published = node.peering.published
        assert set(published.chain_links(part.tip)) == set(links_of(long))
        assert published.record(long.tip) is not None  # named: it is not here
        assert not node.store.has_block(long.records[-1].blocks[0])

    world(main)


def test_where_what_follows_is_not_what_the_link_names_the_span_is_left(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        long = chain_of(40)
        other = make_chain(3, profile=long.profile, seed=3, base=head(long, 37))
        offer = await node.meets("peer", long)
        (false,) = [
            sign_link(SIGNER, replace(claim, prefix_key=other.keys[-1]), 9, 1).encoding
            for claim in claims(long.records, 32)
        ]
        offer.links = (false, *links_of(long)[1:])
        assert (await node.resolve(head(long, 37))).num_windows == 32

    world(main)


def test_links_of_several_neurons_attest_one_chain(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        other = Signer(b"\5" * 32)
        links = (*links_of(chain, 20), *links_of(head(chain, 20), 0, other))
        await node.meets("peer", chain, links)
        assert (await node.resolve(chain)).num_windows == 40

    world(main)


def test_windows_of_another_class_are_taken_unless_it_is_to_be_exact(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40, numerics_class="native:other")
        offer = await node.meets("peer", chain)
        got = await node.resolve(chain, exact=True)
        assert (got.why, got.num_windows, offer.num_reads) == ("nobody", 0, 0)
        assert (await node.resolve(chain)).num_windows == 40
        binding = Binding(chain.model_id, chain.profile, CLASS)
        assert await node.memory.match(binding, chain.tokens) == []
        assert await node.memory.match(binding, chain.tokens, exact=False) == chain.window_ids
        assert not await node.memory.is_exact(binding, chain.tip)

    world(main)


def test_of_a_prompt_that_is_given_up_nothing_is_offered_later(world: Run) -> None:
    """Else what is forgotten with it would be offered again behind that."""

    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(80)  # so many that the engine does not begin so soon
        await node.meets("peer", chain)
        net.link("me", "peer", bytes_per_s=4 * chain.profile.window_particle_bytes / WINDOW_S)
        with trio.move_on_after(6 * WINDOW_S) as scope:
            await node.begin(chain)
        assert scope.cancelled_caught
        record = node.peering.published.record
        num = sum(record(name) is not None for name in chain.window_ids)
        assert 0 < num < 80
        await trio.sleep(60)
        assert sum(record(name) is not None for name in chain.window_ids) == num

    world(main)


@pytest.mark.parametrize(
    ("cached", "is_kept", "required", "is_exact"),
    [
        (CachedValue(peers=320), True, False, False),
        (CachedValue(peers=320), False, False, False),  # its windows could not be written
        (CachedValue(l0=320), False, False, False),
        (CachedValue(l1=320), False, True, True),
        (CachedValue(), False, False, True),
    ],
)
def test_an_answer_is_called_exact_only_where_that_is_known(
    world: Run, cached: CachedValue, is_kept: bool, required: bool, is_exact: bool
) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20, numerics_class="native:other")
        node.store.put(sealed(chain))
        usage = UsageValue(330, 1, cached, 330)
        tip = chain.tip if is_kept else None
        answer = Generated(1, [1], "length", tip, usage, 1.0, {})
        resolved = await node.begin(chain)
        await resolved.end()
        assert await node.resolver.is_exact(resolved, answer, required=required) is is_exact

    world(main)


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_as_long_the_own_class_is_taken(world: Run, is_first: bool) -> None:
    async def main(node: Node, net: Internet) -> None:
        other, own = chain_of(40, numerics_class="a:native:other"), chain_of(40)
        first, second = (own, other) if is_first else (other, own)
        offer = await node.meets("peer", first)
        offer.published.put(second.records, [parse_link(each) for each in links_of(second)])
        offer.store.put(sealed(second))
        await node.resolve(own)
        binding = Binding(own.model_id, own.profile, CLASS)
        assert await node.memory.match(binding, own.tokens) == own.window_ids
        assert await node.memory.is_exact(binding, own.tip)

    world(main)


def test_alone_or_offline_it_is_computed_at_once(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        began_s = trio.current_time()
        assert (await node.resolve(chain)).why == "nobody"
        node.peering.why_off = "cut"
        assert (await node.resolve(chain)).why == "offline"
        node.resolver._peering = None
        assert (await node.resolve(chain)).why == "offline"
        assert trio.current_time() - began_s < budget_s(40 * WINDOW_S)

    world(main)


def test_what_is_computed_sooner_than_asked_for_is(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        await node.meets("peer", chain)
        learned = await node.resolve(make_chain(40, profile=chain.profile, seed=9))
        usage = UsageValue(640, 1, CachedValue(), 640)
        answer = Generated(1, [1], "length", None, usage, 1.0, {"prefill": LEAST_S * 999})
        node.resolver.learn(learned.resolved, answer)
        assert (await node.resolve(chain)).why == "quick"
        node.resolver.learn(learned.resolved, replace_timings(answer, 1000 * LEAST_S * 20))
        assert (await node.resolve(chain)).num_windows == 40

    def replace_timings(answer: Generated, prefill_ms: float) -> Generated:
        return Generated(
            1, answer.tokens, "length", None, answer.usage, 1.0, {"prefill": prefill_ms}
        )

    world(main)


def test_a_link_that_is_slower_than_computing_is_left_and_remembered(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        profile = make_profile(kv_heads=8, head_dim=128)
        chain = make_chain(100, profile=profile)
        computing = 100 * WINDOW_S
        speed = chain.profile.window_particle_bytes / WINDOW_S / 2
        net.link("me", "peer", bytes_per_s=speed)
        offer = await node.meets("peer", chain)
        first = await node.resolve(chain)
        assert first.why == "slow"
        assert first.waited_s <= 1.1 * (2 * budget_s(computing))
        assert 0 < first.num_windows < 10
        reads = offer.num_reads
        second = await node.resolve(make_chain(100, profile=profile, seed=1))
        assert second.why == "nobody"
        third = await node.resolve(chain)
        assert (third.why, offer.num_reads) == ("slow", reads)
        flags = node.peering.published.foreign.flags(chain.window_ids)
        assert flags.count(True) == flags.index(False) == first.num_windows

    world(main)


def test_a_peer_with_flipped_bytes_is_left_for_another_and_remembered(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(40)
        liar = await node.meets("liar", chain)

        def flip(block_id: BlockId, data: bytes) -> bytes:
            return data[:-1] + bytes([data[-1] ^ 1])

        liar.spoil = flip
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows) == ("lost", 0)
        assert await node.matched(chain) == 0
        (entry,) = [entry for _, entry in node.peering.ledger.entries()]
        assert entry.num_bad == 1
        await node.meets("good", chain)
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows) == ("", 40)

    world(main)


@pytest.mark.spec(62)
@pytest.mark.parametrize("when", ["before", "asked", "fetching", "late"])
@pytest.mark.parametrize("how", ["cut", "vanish", "kill", "lie"])
@pytest.mark.parametrize("num_peers", [1, 3])
def test_whatever_peers_do_costs_a_small_share_of_computing(
    world: Run, when: str, how: str, num_peers: int
) -> None:
    """R10: what passes beyond what computing what came would have taken."""

    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(200)
        compute_s = 200 * WINDOW_S
        names = [f"peer{number}" for number in range(num_peers)]
        shops = [await node.meets(name, chain) for name in names]
        for name in names:  # twice as fast as computing
            net.link("me", name, latency_s=0.01, bytes_per_s=8 * chain_bytes(chain) / compute_s)

        async def go_wrong() -> None:
            await trio.sleep({"before": 0, "asked": 0.02, "fetching": 0.15, "late": 0.3}[when])
            for name, shop in zip(names, shops, strict=True):
                if how == "cut":
                    net.cut("me", name)
                elif how == "lie":
                    shop.spoil = lambda _, data: data[::-1]
                else:
                    getattr(net, how)(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_wrong)
            if when == "before":
                await trio.sleep(0.001)
            resolved = await node.resolve(chain)
            took_s = resolved.waited_s
        saved_s = resolved.num_windows * WINDOW_S
        assert took_s - saved_s <= budget_s(compute_s) + WINDOW_S
        assert await node.matched(chain) == resolved.num_windows
        assert resolved.num_windows < 200
        if how != "lie":
            assert not any(entry.num_bad for _, entry in node.peering.ledger.entries())

    world(main)


def chain_bytes(chain: Chain) -> int:
    return len(chain.records) * chain.profile.window_particle_bytes


@pytest.mark.parametrize("is_known", [False, True])
def test_a_resume_from_a_known_peer_costs_one_round_trip_before_its_blocks(
    world: Run, is_known: bool
) -> None:
    """That of the question; the request for blocks leaves at once behind its answer. Of who gave
    nothing yet, streams are to be opened first: two round trips more, and one for no bulk path."""

    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(80)
        shop = await node.meets("peer", chain)
        if is_known:
            assert (await node.resolve(head(chain, 40))).num_windows == 40
            await trio.sleep(30.0)
        rtt_s, began_s = 0.04, trio.current_time()
        net.link("me", "peer", latency_s=rtt_s / 2)
        read_s = list[float]()
        shop.spoil = lambda _, data: read_s.append(trio.current_time() - began_s) or data  # type: ignore[func-returns-value]
        assert (await node.resolve(chain)).num_windows == (40 if is_known else 80)
        expected_s = (1.5 if is_known else 4.5) * rtt_s  # and half of one on the way back
        assert read_s[0] == pytest.approx(expected_s, abs=0.1 * rtt_s)

    world(main)


def test_a_forged_record_that_names_a_block_of_ours_is_refused(world: Run) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain, ours = chain_of(20), chain_of(2, seed=5)
        node.store.put(sealed(ours))
        blocks = (ours.records[0].blocks[0], *chain.records[-1].blocks[1:])
        forged = replace(chain.records[-1], blocks=blocks)
        bad = replace(chain, records=(*chain.records[:-1], forged))
        await node.meets("peer", bad)
        resolved = await node.resolve(chain)
        assert (resolved.why, resolved.num_windows) == ("broken", 19)

    world(main)
