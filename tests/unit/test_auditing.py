"""What becomes of windows that peers sent: looked at, drawn, computed again, condemned.

Real tiers, a real index and a real network on virtual time; the engine says what a test wants.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daemon.arena import SharedMemory
from daemon.auditing import Auditing
from daemon.binding import Binding
from daemon.condemning import Condemning
from daemon.loading import make_room_behind
from daemon.memory import Memory
from glia.errors import NotFound
from glia.graph.ids import BlockId, ModelId, WindowId, digest
from glia.graph.link import Link, sign_link
from glia.graph.neuron import Signer
from glia.graph.numerics import CANONICAL
from glia.graph.profile import KvScheme
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from glia.local.messages import AuditedWindow, Seal
from glia.local.values import FindingValue
from glia.store.foreign import Looked, Origin
from glia.store.memory import MemoryStore
from glia.store.published import Published
from p2p.neurons import Neurons
from tests.builders import CLASS, Chain
from tests.node_parts import payload_of
from tests.resolver_parts import MIB, SIGNER, Node, chain_of, head, links_of, run
from tests.store_parts import sealed

NUM = 64
CHAIN = chain_of(NUM)
BINDING = Binding(CHAIN.model_id, CHAIN.profile, CLASS)
OTHER = Signer(b"\x09" * 32)


class Engine:
    """Finds windows false that a test names.

    Attributes:
        audited: windows that it was asked to compute again.
        verdicts: what it says of some; of the others: clean.
    """

    def __init__(self) -> None:
        self.binding = BINDING
        self.audited: list[WindowId] = []
        self.verdicts: dict[WindowId, str] = {}
        self.num_forgot = 0

    async def audit(
        self, chain: Sequence[WindowId], tokens: Sequence[int], *, is_canonical: bool
    ) -> AuditedWindow:
        assert len(tokens) == CHAIN.profile.block_size
        self.audited.append(chain[-1])
        return AuditedWindow(1, self.finding(chain[-1], audit=True), 0.1, calibrated=True)

    def finding(self, name: WindowId, *, audit: bool) -> FindingValue:
        verdict = self.verdicts.get(name, "clean")
        return FindingValue(name, audit, verdict, "all layers", 3, 0.5, 0.1)  # type: ignore[arg-type]

    async def forget_l0(self) -> None:
        self.num_forgot += 1


class Answers:
    """Conversations, as far as an audit knows them."""

    def __init__(self) -> None:
        self.marked: list[tuple[int, WindowId]] = []

    def taint(self, model_id: ModelId, tokens: Sequence[int], window_id: WindowId) -> None:
        self.marked.append((len(tokens), window_id))


class Rig:
    def __init__(self, node: Node, draws: Iterator[float]) -> None:
        self.node, self.engine, self.answers = node, Engine(), Answers()
        peering, memory = node.peering, node.memory
        condemning = Condemning(memory, peering.published, trio.Lock(), node.counters)
        self.auditing = Auditing(
            memory,
            peering,
            _Engines(self.engine),  # type: ignore[arg-type]
            condemning,
            node.counters,
            self.answers,  # type: ignore[arg-type]
            lambda: next(draws),
        )

    async def lease(self, chain: Chain) -> list[int]:
        """What a lease says is to be looked at."""
        pinned = await self.node.memory.loader.pin(BINDING, chain.window_ids)
        self.node.memory.loader.unpin(pinned.windows)
        return list(pinned.checks)

    async def examine(self, chain: Chain, *, audit: bool = False) -> list[WindowId]:
        found = [self.engine.finding(name, audit=audit) for name in chain.window_ids]
        return [*await self.node.memory.examined(BINDING, found)]

    def origins(self, chain: Chain) -> list[Origin | None]:
        found = self.node.peering.published.foreign.origins(chain.window_ids)
        return [found.get(name) for name in chain.window_ids]


class _Engines:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def links(self) -> list[Engine]:
        return [self._engine]


Main = Callable[[Rig], Awaitable[None]]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    def begin(main: Main, accept: str = "any", draws: Sequence[float] = ()) -> None:
        async def in_node(node: Node, net: object) -> None:
            rig = Rig(node, iter([*draws, *[0.999] * 10_000]))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rig.auditing.run)
                await main(rig)
                nursery.cancel_scope.cancel()

        run(monkeypatch, tmp_path, in_node, accept=accept)

    return begin


async def fetched(
    rig: Rig, chain: Chain = CHAIN, signer: Signer = SIGNER, peer: str = "peer"
) -> None:
    await rig.node.meets(peer, chain, links_of(chain, signer=signer))
    got = await rig.node.resolve(chain)
    assert got.num_windows == len(chain.records)
    await trio.sleep(0.1)  # it is settled


def test_what_came_is_to_be_looked_at_and_whose_it_is_is_known(world: Callable[..., None]) -> None:
    async def main(rig: Rig) -> None:
        await fetched(rig)
        assert await rig.lease(CHAIN) == [1] * NUM
        assert rig.origins(CHAIN) == [Origin(Looked.CAME, SIGNER.neuron)] * NUM
        rig.node.peering.neurons.say(SIGNER.neuron, "known")
        await rig.examine(head(CHAIN, 40))
        assert await rig.lease(CHAIN) == [0] * 40 + [1] * 24
        again = Memory(rig.node.arena, rig.node.store, 4)
        Condemning.load(again, rig.node.peering.published)
        assert again.arrivals.unchecked == set(CHAIN.window_ids[40:])
        assert rig.node.counters["windows_checked"] == 40

    world(main)


def test_of_a_stranger_the_first_32_are_computed_again_before_they_are_used(
    world: Callable[..., None],
) -> None:
    async def main(rig: Rig) -> None:
        await fetched(rig)
        assert await rig.examine(CHAIN) == CHAIN.window_ids[:32]
        assert await rig.lease(CHAIN) == [1] * 32 + [0] * 32  # an engine that cannot uses none
        assert rig.origins(CHAIN)[:32] == [Origin(Looked.CAME, SIGNER.neuron)] * 32
        await rig.examine(head(CHAIN, 32), audit=True)
        assert await rig.lease(CHAIN) == [0] * NUM
        assert rig.origins(CHAIN) == [Origin(Looked.CHECKED, SIGNER.neuron)] * NUM
        assert rig.node.peering.neurons.entry(SIGNER.neuron).num_clean == 32
        assert not rig.engine.audited  # the engine that uses them did

    world(main)


def test_of_a_friend_some_are_computed_again_meanwhile_within_two_seconds(
    world: Callable[..., None],
) -> None:
    async def main(rig: Rig) -> None:
        rig.node.peering.neurons.say(SIGNER.neuron, "known")
        await fetched(rig)
        began_s = trio.current_time()
        assert await rig.examine(CHAIN) == []
        await trio.sleep(0.01)
        assert trio.current_time() - began_s < 2.0
        assert rig.engine.audited == [CHAIN.window_ids[2]]

    world(main, draws=[0.9, 0.06, 0.04])


@pytest.mark.spec(44)
@pytest.mark.fault("F31")
def test_all_that_a_proven_liar_attested_is_condemned_and_stays_so(
    world: Callable[..., None],
) -> None:
    """It behaved for 40 windows first."""

    async def main(rig: Rig) -> None:
        node, false = rig.node, CHAIN.window_ids[45]
        node.peering.neurons.say(SIGNER.neuron, "known")
        await fetched(rig)
        assert await node.matched(CHAIN) == NUM
        rig.engine.verdicts[false] = "false"
        await rig.examine(head(CHAIN, 40))
        assert await node.matched(CHAIN) == NUM
        await rig.examine(Chain(  # the one drawn is the 46th
            CHAIN.profile, CHAIN.model_id, CHAIN.tokens[640:], CHAIN.records[40:45],
            CHAIN.particles[40:45], CHAIN.keys[40:45],
        ))  # fmt: skip
        await rig.auditing.audit(rig.engine, CHAIN.records[45])  # type: ignore[arg-type]
        assert await node.matched(CHAIN) == 0
        assert rig.answers.marked == [(46 * CHAIN.profile.block_size, false)]
        assert await rig.lease(CHAIN) == []
        await trio.sleep(0.1)
        assert node.peering.published.record(CHAIN.tip) is None  # nor shown to others
        assert rig.engine.num_forgot == 1

        entry = node.peering.neurons.entry(SIGNER.neuron)
        assert (entry.word, entry.num_checked) == ("never", 45)
        assert "layer 3" in entry.why
        got = await node.resolve(CHAIN)  # it is there, and offers it
        assert (got.num_windows, got.why) == (0, "nobody")

        kept = Neurons()
        node.peering._remembering._neuron_file.load(kept)
        assert kept.is_never(SIGNER.neuron)
        again = Memory(node.arena, node.store, 4)
        Condemning.load(again, node.peering.published)
        assert again.hidden.condemned >= set(CHAIN.window_ids)
        assert rig.origins(CHAIN) == [Origin(Looked.CONDEMNED, SIGNER.neuron)] * NUM

    world(main)


def test_what_only_the_user_s_word_put_aside_another_word_takes_again(
    world: Callable[..., None],
) -> None:
    async def main(rig: Rig) -> None:
        node, memory = rig.node, rig.node.memory
        await fetched(rig)
        await rig.examine(head(CHAIN, 10))
        await rig.examine(head(CHAIN, 10), audit=True)  # of a stranger each is, before it is used
        before, unchecked = rig.origins(CHAIN), set(memory.arrivals.unchecked)
        assert unchecked == set(CHAIN.window_ids[10:])
        for word in ("known", "default"):
            await rig.auditing.trust(SIGNER.neuron, "never")
            assert await node.matched(CHAIN) == 0
            again = Memory(node.arena, node.store, 4)
            Condemning.load(again, node.peering.published)
            assert again.hidden.condemned == set(CHAIN.window_ids)
            await rig.auditing.trust(SIGNER.neuron, word)  # type: ignore[arg-type]
            assert await node.matched(CHAIN) == NUM
            assert (rig.origins(CHAIN), memory.arrivals.unchecked) == (before, unchecked)
            again = Memory(node.arena, node.store, 4)
            Condemning.load(again, node.peering.published)
            assert again.hidden.condemned == set()

    world(main)


@pytest.mark.parametrize(("verdict", "num_held"), [("differs", 20), ("false", 0)])
def test_what_did_not_hold_no_word_takes_again(
    world: Callable[..., None], verdict: str, num_held: int
) -> None:
    async def main(rig: Rig) -> None:
        await fetched(rig)
        rig.engine.verdicts[CHAIN.window_ids[20]] = verdict
        await rig.examine(head(CHAIN, 21))
        await rig.auditing.trust(SIGNER.neuron, "never")
        assert await rig.node.matched(CHAIN) == 0
        await rig.auditing.trust(SIGNER.neuron, "default")
        assert await rig.node.matched(CHAIN) == num_held

    world(main)


def test_what_is_not_proven_goes_without_an_accusation(world: Callable[..., None]) -> None:
    async def main(rig: Rig) -> None:
        await fetched(rig)
        rig.engine.verdicts[CHAIN.window_ids[20]] = "differs"
        await rig.examine(head(CHAIN, 21))
        assert not rig.node.peering.neurons.is_never(SIGNER.neuron)
        assert await rig.node.matched(CHAIN) == 20  # it, and what follows it
        entry = rig.node.peering.neurons.entry(SIGNER.neuron)
        assert (entry.num_checked, entry.num_refused) == (20, 1)
        assert rig.node.counters["windows_condemned"] == NUM - 20

    world(main)


def test_what_this_node_computes_itself_is_its_own_again(world: Callable[..., None]) -> None:
    async def main(rig: Rig) -> None:
        node = rig.node
        await fetched(rig)
        rig.engine.verdicts[CHAIN.window_ids[0]] = "false"
        await rig.examine(head(CHAIN, 1))
        assert await node.matched(CHAIN) == 0
        node.memory.hidden.acquit(CHAIN.window_ids[:3])  # as the sealer does
        node.memory.sealer.on_acquit(CHAIN.window_ids[:3])
        await trio.sleep(0.1)
        assert await node.matched(CHAIN) == 3
        assert node.peering.published.foreign.flags(CHAIN.window_ids[:4]) == [False] * 3 + [True]

    world(main)


def test_what_continues_a_false_window_is_not_acquitted(
    world: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine computed it from that window, which is found to be false as it is sealed."""

    async def main(rig: Rig) -> None:
        node, size = rig.node, CHAIN.profile.block_size
        await fetched(rig)
        rig.engine.verdicts[CHAIN.window_ids[0]] = "false"
        fill = node.memory.sealer._fill

        async def filled(*args: object) -> object:
            await rig.examine(head(CHAIN, 1))
            return await fill(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(node.memory.sealer, "_fill", filled)
        staging = memoryview(payload_of(CHAIN, 1))
        call = Seal(1, CHAIN.window_ids[0], size, list(CHAIN.tokens[size : 2 * size]), 0)
        with pytest.raises(NotFound):
            await node.memory.sealer.seal(BINDING, staging, call)
        assert set(CHAIN.window_ids) <= node.memory.hidden.condemned
        await trio.sleep(0.1)
        assert node.peering.published.foreign.flags(CHAIN.window_ids[:2]) == [True, True]

    world(main)


def test_what_comes_while_windows_are_condemned_is_condemned_with_them(
    world: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(rig: Rig) -> None:
        memory, table = rig.node.memory, rig.node.memory.table
        await fetched(rig, head(CHAIN, 40))
        follows, late = Condemning._with_what_follows, iter(range(40, 43))

        async def followed(self: Condemning, names: Sequence[WindowId]) -> list[WindowId]:
            found = await follows(self, names)
            for at in itertools.islice(late, 1):
                room = await make_room_behind(
                    table, memory.writer, CHAIN.profile.window_particle_bytes, 1
                )
                sizes = CHAIN.profile.particle_sizes
                table.enter(room[0], CHAIN.records[at], CHAIN.keys[at], sizes, dirty=False)
            return found

        monkeypatch.setattr(Condemning, "_with_what_follows", followed)
        rig.engine.verdicts[CHAIN.window_ids[10]] = "differs"
        await rig.examine(head(CHAIN, 11))
        assert {*CHAIN.window_ids[10:43]} <= memory.hidden.condemned
        assert rig.origins(CHAIN)[42] == Origin(Looked.CONDEMNED)

    world(main)


def test_another_s_windows_stay_when_one_lies(world: Callable[..., None]) -> None:
    async def main(rig: Rig) -> None:
        other = chain_of(20, seed=5)
        await fetched(rig)
        await rig.node.meets("honest", other, links_of(other, signer=OTHER))
        assert (await rig.node.resolve(other)).num_windows == 20
        rig.engine.verdicts[CHAIN.window_ids[10]] = "false"
        await rig.examine(head(CHAIN, 11))
        assert await rig.node.matched(CHAIN) == 0
        assert await rig.node.matched(other) == 20

    world(main)


def test_nobody_accuses_itself(world: Callable[..., None]) -> None:
    async def main(rig: Rig) -> None:
        own = rig.node.peering.signer
        await fetched(rig, signer=own)
        rig.engine.verdicts[CHAIN.window_ids[3]] = "false"
        await rig.examine(head(CHAIN, 4))
        assert not rig.node.peering.neurons.is_never(own.neuron)
        assert await rig.node.matched(CHAIN) == 3

    world(main)


def test_a_window_that_is_gone_is_no_fault(world: Callable[..., None]) -> None:
    async def main(rig: Rig) -> None:
        with pytest.raises(NotFound):
            await rig.auditing.audit(rig.engine, CHAIN.records[3])  # type: ignore[arg-type]

    world(main)


def test_windows_from_before_nobody_knew_who_attests_them_are_looked_at(tmp_path: Path) -> None:
    published = Published(tmp_path / "published")
    published.foreign.expect(CHAIN.window_ids)
    published.foreign.settle(CHAIN.window_ids, CHAIN.window_ids)
    store = MemoryStore(64 * MIB)
    store.put(sealed(CHAIN))
    memory = Memory(SharedMemory("test-l1", MIB, 0), store, 4)
    Condemning.load(memory, published)
    assert memory.arrivals.unchecked == set(CHAIN.window_ids)
    published.close()


CANON = chain_of(20, seed=7, numerics_class=CANONICAL)


def twin_of(chain: Chain) -> list[WindowRecord]:
    """The same tokens; from the last window but one on other blocks."""
    found = list(chain.records[:-2])
    for record in chain.records[-2:]:
        blocks = tuple(BlockId(digest(name)) for name in record.blocks)
        found.append(replace(record, prev=found[-1].window_id, blocks=blocks))
    return found


def signed_over(records: Sequence[WindowRecord]) -> list[Link]:
    return [sign_link(SIGNER, claim, 50 + n, 1) for n, claim in enumerate(claims(records, 0))]


@pytest.mark.spec(63)
@pytest.mark.parametrize("scheme", [KvScheme.BF16, KvScheme.F32])
def test_who_signed_two_canonical_windows_in_place_of_one_is_never_believed_again(
    world: Callable[..., None], scheme: KvScheme
) -> None:
    """What was fetched is the first; the second need only be shown. In f32 it is kept alone."""

    async def main(rig: Rig) -> None:
        node, promises = rig.node, rig.node.peering.published.promises
        await fetched(rig, CANON)
        await fetched(rig, peer="other")  # native windows of its own, too
        assert [*promises.evidence()] == []
        twin = twin_of(CANON)
        await rig.auditing.overheard(scheme, twin, signed_over(twin))
        (found,) = promises.evidence()
        assert {found.one.window.window_id, found.other.window.window_id} == {
            CANON.records[-2].window_id,
            twin[-2].window_id,
        }
        assert node.counters["equivocations"] == 1
        entry = node.peering.neurons.entry(SIGNER.neuron)
        await trio.sleep(0.1)
        if scheme is KvScheme.F32:
            assert (entry.word, entry.caught_s) == ("default", 0.0)
            assert await node.matched(CHAIN) == NUM
        else:
            assert entry.word == "never"
            assert "of the same tokens" in entry.why
            assert await node.matched(CANON) == 0
            assert await node.matched(CHAIN) == 0
        await rig.auditing.overheard(scheme, twin, signed_over(twin))
        assert node.counters["equivocations"] == 1

    world(main)


def test_nobody_is_believed_never_for_signing_the_same_twice(world: Callable[..., None]) -> None:
    async def main(rig: Rig) -> None:
        await fetched(rig, CANON)
        await rig.auditing.overheard(KvScheme.BF16, CANON.records, signed_over(CANON.records))
        native = twin_of(CHAIN)
        await rig.auditing.overheard(KvScheme.BF16, native, signed_over(native))
        assert rig.node.counters["equivocations"] == 0
        assert rig.node.peering.neurons.entry(SIGNER.neuron).word == "default"

    world(main)
