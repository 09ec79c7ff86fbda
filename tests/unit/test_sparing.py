"""What could be computed again, and what L2 is told not to evict."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daemon.attachments import Attachments, Computable
from daemon.conversations import Conversations
from daemon.data_dir import prepare
from daemon.domains import Domains
from daemon.models_registry import KnownModel, ModelsRegistry
from daemon.paths import Paths
from daemon.reproducible import find_unreproducible, is_reproducible
from daemon.sparing import Sparing
from glia.graph.ids import ModelId, WindowId
from glia.local import messages as m
from glia.local import values
from glia.store.memory import MemoryStore
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain
from tests.conversation_parts import opened, talk, turn_of
from tests.model_files import write_model
from tests.store_parts import sealed

OLD = "native:old"
KIND = Computable(MODEL, TINY.profile_id, CLASS)


def attach_of(numerics_class: str = CLASS, model: str = "echo", dtype: str = "float32") -> m.Attach:
    shapes = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
    profile = values.ProfileValue(TINY.block_size, TINY.scheme, TINY.mode, shapes)
    return m.Attach(1, MODEL, profile, numerics_class, serves=model, dtype=dtype)


# -- a chain ------------------------------------------------------------------------------


@pytest.mark.spec(32)
def test_a_window_is_reproducible_exactly_when_all_it_follows_from_is_at_hand() -> None:
    store = MemoryStore(1 << 24)
    own = make_chain(4)
    old = make_chain(2, numerics_class=OLD, seed=1)
    mixed = make_chain(2, base=old, seed=2)  # of the own class, behind another
    for chain in (own, mixed):
        store.put(sealed(chain))
    kinds = {KIND}
    assert all(is_reproducible(name, store.get, kinds) for name in own.window_ids)
    assert not any(is_reproducible(name, store.get, kinds) for name in mixed.window_ids)
    other_model = Computable(ModelId(bytes(32)), TINY.profile_id, CLASS)
    for wrong in (set(), {other_model}, {Computable(MODEL, MODEL, CLASS)}):  # type: ignore[arg-type]
        assert not is_reproducible(own.tip, store.get, wrong)
    assert is_reproducible(mixed.tip, store.get, {KIND, Computable(MODEL, KIND.profile_id, OLD)})
    store.forget([own.window_ids[1]])
    assert [is_reproducible(name, store.get, kinds) for name in own.window_ids] == [
        *(True, False, False, False)
    ]


def test_chains_are_sorted_and_what_is_sorted_is_not_read_again() -> None:
    store = MemoryStore(1 << 24)
    own = make_chain(4)
    mixed = make_chain(2, base=make_chain(1, numerics_class=OLD, seed=1), seed=2)
    torn = make_chain(3, seed=3, numerics_class=OLD)
    store.put([*sealed(own), *sealed(mixed), *sealed(torn, (0, 2))])
    good: set[WindowId] = set()
    bad: set[WindowId] = set()
    read: list[WindowId] = []

    def get(name: WindowId) -> object:
        read.append(name)
        return store.get(name)

    tips = [own.tip, mixed.tip, torn.tip]
    find_unreproducible(tips, get, {KIND}, good, bad)  # type: ignore[arg-type]
    assert good == set(own.window_ids)
    assert bad == set(mixed.window_ids)  # behind a hole nothing can be used
    read.clear()
    longer = make_chain(1, base=own, seed=5)
    store.put(sealed(longer))
    find_unreproducible([longer.tip, mixed.tip], get, {KIND}, good, bad)  # type: ignore[arg-type]
    assert read == [longer.tip]
    assert longer.tip in good


# -- a node's --------------------------------------------------------------------------------


class Told(MemoryStore):
    """Remembers what it was told to spare."""

    def __init__(self) -> None:
        super().__init__(1 << 24)
        self.spared: list[set[WindowId] | None] = []

    def spare(self, windows: Collection[WindowId] | None) -> None:
        self.spared.append(set(windows) if windows is not None else None)
        super().spare(windows)


@dataclass
class Node:
    """The parts that sparing works on."""

    paths: Paths
    models_dir: Path
    store: Told
    conversations: Conversations
    attachments: Attachments
    sparing: Sparing

    async def settled(self) -> frozenset[WindowId]:
        """What is spared once all was looked at."""
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert self.sparing.spared is not None
        return self.sparing.spared

    async def say(self, name: str, chain: Chain) -> None:
        self.store.put(sealed(chain))
        await talk(self.conversations, list(chain.tokens), [1], turn_of(name), tip=chain.tip)


class OnlyStore:
    """Memory whose L1 is empty."""

    def __init__(self, store: Told) -> None:
        self.store = store
        self.records = self
        self.get_now = store.get
        self.find = store.find
        self.domains = Domains()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    paths, models_dir = Paths(tmp_path / "node"), tmp_path / "models"
    prepare(paths)
    write_model(models_dir / "files")
    (models_dir / "echo.model").write_text('source = "files"\ndtype = "float32"\n')
    registry = ModelsRegistry(paths, models_dir)
    conversations = opened(paths.conversations)
    attachments = Attachments(paths.attachments)
    store = Told()
    sparing = Sparing(OnlyStore(store), conversations, registry, attachments)  # type: ignore[arg-type]
    conversations.on_change = sparing.wake
    attachments.on_change = sparing.models_changed
    attachments.remember(attach_of(), registry.get("echo"))
    return Node(paths, models_dir, store, conversations, attachments, sparing)


def with_sparing(node: Node, body: object) -> None:
    async def main() -> None:
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.sparing.run)
                await node.sparing.told.wait()
                await body()  # type: ignore[operator]
                nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.mark.spec(31)
def test_it_is_usually_nothing_and_follows_conversations(node: Node) -> None:
    own, old = make_chain(3), make_chain(3, seed=1, numerics_class=OLD)
    longer = make_chain(2, base=old, seed=2, numerics_class=OLD)

    async def body() -> None:
        await node.say("own", own)
        assert await node.settled() == frozenset()
        assert node.store.spared == [set()]  # told so: a smaller cap is kept from then on
        await node.say("old", old)
        assert await node.settled() == set(old.window_ids)
        await node.say("old", longer)
        assert await node.settled() == set(longer.window_ids)
        await node.say("other", old)
        with node.conversations.hold("old"):
            await node.conversations.mark("old")
            assert await node.settled() == set(old.window_ids)
            await node.conversations.remove("old")
        assert node.store.spared[-1] == set(old.window_ids)

    with_sparing(node, body)


@pytest.mark.spec(31)
def test_it_follows_classes_and_models(node: Node) -> None:
    chain = make_chain(3)
    known = ModelsRegistry(node.paths, node.models_dir).get("echo")

    async def body() -> None:
        await node.say("own", chain)
        assert await node.settled() == frozenset()
        node.attachments.remember(attach_of("native:newer"), known)
        assert await node.settled() == set(chain.window_ids)
        node.attachments.remember(attach_of(), known)
        assert await node.settled() == frozenset()
        node.attachments.remember(attach_of("native:newer", dtype="bfloat16"), known)
        assert await node.settled() == frozenset()  # the other dtype's engine has its own class
        shutil.rmtree(node.models_dir / "files")
        node.sparing.models_changed()
        assert await node.settled() == set(chain.window_ids)
        write_model(node.models_dir / "files")
        node.sparing.models_changed()
        assert await node.settled() == frozenset()
        (node.models_dir / "echo.model").write_text('source = "files"\ndtype = "bfloat16"\n')
        node.sparing.models_changed()
        assert await node.settled() == set(chain.window_ids)

    with_sparing(node, body)


@pytest.mark.spec(31)
def test_what_eviction_left_of_a_chain_is_found_by_its_tokens(node: Node) -> None:
    old = make_chain(5, numerics_class=OLD)

    async def prepare_node() -> None:
        await node.say("old", old)
        node.store.forget(old.window_ids[3:])

    trio.run(prepare_node)

    async def body() -> None:
        assert await node.settled() == set(old.window_ids[:3])

    with_sparing(node, body)


@pytest.mark.spec(31)
def test_what_others_stored_is_kept_for_an_answer_that_could_not_be(node: Node) -> None:
    """L2 took nothing more of it; what it begins with is of a conversation that goes."""
    old = make_chain(3, numerics_class=OLD)

    async def body() -> None:
        await node.say("first", old)
        await talk(node.conversations, list(old.tokens), [1], turn_of("full"), tip=None)
        with node.conversations.hold("first"):
            await node.conversations.mark("first")
            await node.conversations.remove("first")
        assert await node.settled() == set(old.window_ids)

    with_sparing(node, body)


def test_another_of_the_same_name_is_looked_at_anew(node: Node) -> None:
    old, other = (make_chain(3, seed=n, numerics_class=OLD) for n in (1, 2))

    async def body() -> None:
        await node.say("a", old)
        assert await node.settled() == set(old.window_ids)
        node.conversations.on_change = lambda: None
        with node.conversations.hold("a"):
            await node.conversations.mark("a")
            await node.conversations.remove("a")
        await node.say("a", other)
        node.sparing.wake()
        assert await node.settled() == set(other.window_ids)

    with_sparing(node, body)


def test_a_failing_look_leaves_what_was_told_and_is_repeated(node: Node) -> None:
    old, more = (make_chain(3, seed=n, numerics_class=OLD) for n in (1, 2))

    async def body() -> None:
        await node.say("a", old)
        assert await node.settled() == set(old.window_ids)
        real, node.sparing._look_at = node.sparing._look_at, lambda *_: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        await node.say("b", more)
        assert await node.settled() == set(old.window_ids)
        node.sparing._look_at = real  # type: ignore[method-assign]
        node.sparing.wake()
        assert await node.settled() == {*old.window_ids, *more.window_ids}

    with_sparing(node, body)


@pytest.mark.spec(31)
def test_where_the_first_look_fails_nothing_is_evicted_until_one_succeeds(node: Node) -> None:
    """It is repeated by itself; what fits is written meanwhile."""
    old, more = (make_chain(3, seed=n, numerics_class=OLD) for n in (1, 2))
    trio.run(node.say, "old", old)
    real, node.sparing._look_at = node.sparing._look_at, lambda *_: 1 / 0  # type: ignore[method-assign,assignment,return-value]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.sparing.run)
            await node.sparing.told.wait()
            assert node.store.spared == [None]
            assert node.sparing.spared is None
            node.store.put(sealed(more))
            node.sparing._look_at = real  # type: ignore[method-assign]
            clock.jump(59.0)
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert node.store.spared == [None]
            clock.jump(2.0)
            deadline_s = time.monotonic() + 20
            while len(node.store.spared) < 2:
                assert time.monotonic() < deadline_s
                await trio.testing.wait_all_tasks_blocked()
            assert node.store.spared == [None, set(old.window_ids)]
            nursery.cancel_scope.cancel()

    clock = trio.testing.MockClock()
    trio.run(main, clock=clock)


@pytest.mark.spec(31)
def test_a_damaged_file_costs_no_other_conversation_its_windows(node: Node) -> None:
    torn, whole = (make_chain(3, seed=n, numerics_class=OLD) for n in (1, 2))

    async def prepare_node() -> None:
        await node.say("a", torn)
        await node.say("b", whole)
        node.store.forget(torn.window_ids[2:])

    trio.run(prepare_node)
    path = node.paths.conversations / "a.conv"
    path.write_bytes(bytes(path.stat().st_size))

    async def body() -> None:
        assert await node.settled() == set(whole.window_ids)

    with_sparing(node, body)


@pytest.mark.spec(31)
def test_an_engine_that_attaches_during_the_look_is_not_overlooked(node: Node) -> None:
    chain = make_chain(3)
    known = ModelsRegistry(node.paths, node.models_dir).get("echo")
    real = node.attachments.computable

    def computable(models: Iterable[KnownModel]) -> frozenset[Computable]:
        found = real(models)
        node.attachments.computable = real  # type: ignore[method-assign]
        trio.from_thread.run_sync(node.attachments.remember, attach_of("native:newer"), known)
        return found

    async def body() -> None:
        await node.say("own", chain)
        assert await node.settled() == frozenset()
        node.attachments.computable = computable  # type: ignore[method-assign]
        node.sparing.models_changed()
        assert await node.settled() == set(chain.window_ids)

    with_sparing(node, body)


@pytest.mark.spec(31)
def test_a_node_that_ends_during_its_first_look_does_not_begin_to_write(node: Node) -> None:
    old = make_chain(3, numerics_class=OLD)
    trio.run(node.say, "old", old)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            real = node.sparing._look_at

            def look_at(*args: Any) -> None:
                trio.from_thread.run_sync(nursery.cancel_scope.cancel)
                real(*args)

            node.sparing._look_at = look_at  # type: ignore[method-assign]
            nursery.start_soon(node.sparing.run)
        assert not node.sparing.told.is_set()

    trio.run(main)
    assert node.store.spared == []


# -- what engines attached with ----------------------------------------------------------------


def test_attachments_outlive_a_restart_and_a_damaged_file(node: Node) -> None:
    path = node.paths.attachments
    again = Attachments(path)
    assert [a.binding for a in again.all()] == [a.binding for a in node.attachments.all()]
    assert {layout.profile_id for layout in again.layouts(MODEL)} == {TINY.profile_id}
    assert again.layouts(ModelId(bytes(32))) == set()
    last = again.last("echo", "float32")
    assert last is not None
    assert last.computable == KIND
    assert again.last("echo", "bfloat16") is None
    size = path.stat().st_size
    again.remember(attach_of(), ModelsRegistry(node.paths, node.models_dir).get("echo"))
    assert len(again.all()) == 1
    assert path.stat().st_size == size
    bad = path.read_bytes().replace(b'"float32"', b'"float32')
    for data in (bad, b"", b"[]", b'[{"manifest":"","attach":["Attach",1]}]', b"\xff" * 100):
        path.write_bytes(data)
        assert Attachments(path).all() == []


def test_a_guest_computes_nothing_for_us(node: Node) -> None:
    registry = ModelsRegistry(node.paths, node.models_dir)
    node.attachments.remember(attach_of("native:guest"), None)
    assert node.attachments.computable(registry.known()) == {KIND}
    assert node.attachments.computable([]) == frozenset()


def test_so_many_attachments_are_kept(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.attachments._MAX_KEPT", 3)
    for number in range(5):
        node.attachments.remember(attach_of(f"native:{number}"), None)
    kept = [a.binding.numerics_class for a in Attachments(node.paths.attachments).all()]
    assert kept == ["native:4", "native:3", "native:2"]
