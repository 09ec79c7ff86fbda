"""Forgetting without a node: what expires on a mocked clock, what fails and is gone on with."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
import trio.testing

from daemon.attachments import Attachments
from daemon.config import ConversationsConfig
from daemon.conversations import Conversations
from daemon.forgetting import Forgetting
from daemon.looking import Looking
from daemon.memory import Memory
from daemon.taken import Running
from glia.errors import (
    ConversationBusy,
    GliaError,
    NotFound,
    QuotaExceeded,
    StoreBroken,
    UnknownConversation,
)
from glia.graph.ids import ModelId, WindowId
from glia.local.messages import Seal
from glia.store.base import Forgotten
from glia.store.published import Published
from tests.builders import MODEL, Chain, make_chain
from tests.conversation_parts import opened, talk, turn_of
from tests.node_parts import MIB, payload_of
from tests.unit.test_sparing import attach_of
from tests.unit.test_writer import BINDING, MoodyStore, memory_of, seal

HOUR_S = 3600.0
DEADLINE_S = 60.0


class NoEngines:
    """Nothing runs."""

    def links(self) -> list[object]:
        return []


@dataclass
class Rig:
    memory: Memory
    store: MoodyStore
    conversations: Conversations
    forgetting: Forgetting
    clock: trio.testing.MockClock
    published: Published
    now_s: Callable[[], float]

    async def say(self, chain: Chain, name: str = "") -> str:
        await seal(self.memory, chain)
        await self.memory.flush(chain.window_ids)
        turn = turn_of(name) if name else None
        said = await talk(self.conversations, [*chain.tokens, 1], [2], turn, tip=chain.tip)
        return said.conversation

    def stored(self, chain: Chain) -> int:
        return len(set(chain.window_ids) & set(self.store.windows()))


@asynccontextmanager
async def rig_of(
    tmp_path: Path, settings: ConversationsConfig, clock: trio.testing.MockClock
) -> AsyncIterator[Rig]:
    conversations = opened(tmp_path / "conversations", settings)
    attachments = Attachments(tmp_path / "attached.json")
    attachments.remember(attach_of(), None)
    published = Published(tmp_path / "published")
    started_s = time.time()

    def now_s() -> float:
        return started_s + clock.current_time()

    async with memory_of(tmp_path, MIB) as (memory, store):
        forgetting = Forgetting(
            memory,
            conversations,
            NoEngines(),  # type: ignore[arg-type]
            Looking(memory, conversations, attachments, published, now_s),
            published,
            now_s=now_s,
        )
        conversations.on_change = forgetting.wake
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forgetting.run)
            yield Rig(memory, store, conversations, forgetting, clock, published, now_s)
            nursery.cancel_scope.cancel()
    published.close()


def run_with(
    tmp_path: Path,
    body: Callable[[Rig], Awaitable[None]],
    settings: ConversationsConfig | None = None,
) -> None:
    """Fails after a minute of real time: the clock of these tests does not go on by itself."""
    clock = trio.testing.MockClock()

    async def main() -> None:
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            timer = threading.Timer(DEADLINE_S, token.run_sync_soon, (scope.cancel,))
            timer.start()
            try:
                async with rig_of(tmp_path, settings or ConversationsConfig(), clock) as rig:
                    await body(rig)
            finally:
                timer.cancel()
        assert not scope.cancelled_caught, "it hangs"

    trio.run(main, clock=clock)


async def until(condition: Callable[[], bool]) -> None:
    """In real time: threads work meanwhile."""
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        await trio.testing.wait_all_tasks_blocked()
        time.sleep(0.002)


async def settled() -> None:
    """Nobody does anything, in no thread either."""
    await trio.testing.wait_all_tasks_blocked()
    while trio.to_thread.current_default_thread_limiter().borrowed_tokens:
        time.sleep(0.002)
        await trio.testing.wait_all_tasks_blocked()


async def seal_last(memory: Memory, chain: Chain) -> None:
    """Its last window, behind what is there."""
    last = chain.records[-1]
    staging = memoryview(payload_of(chain, len(chain.records) - 1))
    call = Seal(1, last.prev, last.position_start, list(last.tokens), 0)
    await memory.sealer.seal(BINDING, staging, call)


def silent(what: str, done: int, total: int) -> None:
    assert what


def test_anonymous_ones_expire_by_the_hour(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        base = make_chain(2)
        named = make_chain(2, base=base, seed=1)
        chains = [make_chain(2, base=base, seed=seed) for seed in (2, 3)]
        await rig.say(named, "named")
        names = [await rig.say(chain) for chain in chains]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.forgetting.run_expiry)
            for _ in range(2):
                await settled()
                assert set(rig.conversations.names()) == {"named", *names}
                rig.clock.jump(HOUR_S)
            with rig.conversations.answering(names[0], Running([])):
                await until(lambda: set(rig.conversations.names()) == {"named", names[0]})
            await settled()
            assert names[0] in rig.conversations  # it was busy: the next time
            assert [rig.stored(chain) for chain in (named, *chains)] == [4, 4, 2]
            rig.clock.jump(HOUR_S)
            await until(lambda: rig.conversations.names() == ["named"])
            await settled()
            assert [rig.stored(chain) for chain in (named, *chains)] == [4, 2, 2]
            nursery.cancel_scope.cancel()

    run_with(tmp_path, body, ConversationsConfig(anonymous_hours=1.5))


def test_what_failed_is_gone_on_with_an_hour_later(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chain = make_chain(3)
        await rig.say(chain, "gone")
        real, asked = rig.store.forget, 0

        def failing(names: object, progress: object = None) -> Forgotten:
            nonlocal asked
            asked += 1
            raise StoreBroken("the disk is gone")

        rig.store.forget = failing  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreBroken):
            await rig.forgetting.forget("gone", silent)
        await settled()
        assert asked == 2  # once more by itself, then it waits
        assert rig.conversations.marked() == ["gone"]
        assert chain.tip not in rig.memory.hidden
        rig.store.forget = real  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.forgetting.run_expiry)
            rig.clock.jump(HOUR_S)
            await until(lambda: not rig.conversations.marked())
            nursery.cancel_scope.cancel()
        assert rig.stored(chain) == 0
        assert list((tmp_path / "conversations").iterdir()) == []
        await rig.say(chain, "gone")  # another one of that name: not one that failed
        with rig.conversations.hold("gone"):
            await rig.conversations.mark("gone")
        await until(lambda: not rig.conversations.marked())
        assert rig.stored(chain) == 0

    run_with(tmp_path, body)


class DeafEngine:
    """Listens from the second time on."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.known: list[list[WindowId]] = []
        self.num_asked = 0
        self.has_given_up = False

    def links(self) -> list[DeafEngine]:
        return [self]

    async def forget_l0(self) -> None:
        self.num_asked += 1
        if self.num_asked == 1:
            raise QuotaExceeded("it is behind")
        self.known.append(await self._memory.known(make_chain(3).window_ids))


def test_an_engine_that_did_not_listen_is_told_again(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chain = make_chain(3)
        await rig.say(chain, "gone")
        engine = rig.forgetting._engines = DeafEngine(rig.memory)  # type: ignore[assignment]
        with pytest.raises(QuotaExceeded):
            await rig.forgetting.forget("gone", silent)
        await until(lambda: not rig.conversations.marked())  # by itself
        assert engine.known == [[]]

    run_with(tmp_path, body)


def test_what_a_failure_in_the_middle_left_behind_holes_goes_in_the_end(tmp_path: Path) -> None:
    """What nobody recorded is found as it continues what goes: not once that has gone."""

    async def body(rig: Rig) -> None:
        chain = make_chain(2)
        unrecorded = make_chain(2, base=chain, seed=1)
        await rig.say(chain, "gone")
        await seal(rig.memory, unrecorded)
        await rig.memory.flush(unrecorded.window_ids)
        real = rig.store.forget

        def failing(*_: object) -> Forgotten:
            rig.store.forget = real  # type: ignore[method-assign]
            real(chain.window_ids)
            raise StoreBroken("the disk is gone")

        rig.store.forget = failing  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreBroken):
            await rig.forgetting.forget("gone", silent)
        await until(lambda: not rig.conversations.marked())
        await until(lambda: rig.stored(unrecorded) == 0)

    run_with(tmp_path, body)


class LateEngine:
    """Seals a chain for a run that was given up, and has ended it when it is asked to forget."""

    def __init__(self, memory: Memory, chain: Chain) -> None:
        self._memory = memory
        self._chain = chain
        self.has_given_up = True

    def links(self) -> list[LateEngine]:
        return [self]

    async def forget_l0(self) -> None:
        if self.has_given_up:
            await seal(self._memory, self._chain)
            await self._memory.flush(self._chain.window_ids)
        self.has_given_up = False


@pytest.mark.parametrize("how", ["named", "unreferenced"])
def test_what_an_engine_still_seals_for_a_run_that_was_given_up_goes_too(
    tmp_path: Path, how: str
) -> None:
    async def body(rig: Rig) -> None:
        chain = make_chain(3)
        rig.forgetting._engines = LateEngine(rig.memory, chain)  # type: ignore[assignment]
        if how == "named":
            await talk(rig.conversations, [*chain.tokens, 1], [2], turn_of("gone"))
            outcome = await rig.forgetting.forget("gone", silent)
        else:
            outcome = await rig.forgetting.collect(silent, unreferenced=True)
        assert outcome.num_windows == 3
        assert rig.stored(chain) == 0

    run_with(tmp_path, body)


def test_a_marked_one_can_be_forgotten_by_name(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chain = make_chain(3)
        await rig.say(chain, "gone")
        rig.conversations.on_change = lambda: None
        with rig.conversations.hold("gone"):
            await rig.conversations.mark("gone")
        outcome = await rig.forgetting.forget("gone", silent)
        assert (outcome.num_conversations, outcome.num_windows) == (1, 3)
        with pytest.raises(UnknownConversation):
            await rig.forgetting.forget("gone", silent)

    run_with(tmp_path, body)


def test_what_was_set_aside_is_forgotten_by_its_name(tmp_path: Path) -> None:
    """Alone, and with a conversation that has the name since; its windows are nobody's then."""
    directory = tmp_path / "conversations"

    async def before(rig: Rig) -> None:
        for name in ("alone", "again"):
            await rig.say(make_chain(3), name)

    async def after(rig: Rig) -> None:
        assert rig.conversations.names() == []
        with pytest.raises(StoreBroken, match="set aside") as caught:
            await rig.conversations.read("alone")
        assert "gliad forget alone" in (caught.value.hint or "")
        with rig.conversations.hold("alone"), pytest.raises(ConversationBusy):
            await rig.forgetting.forget("alone", silent)
        outcome = await rig.forgetting.forget("alone", silent)
        assert (outcome.num_conversations, outcome.num_windows) == (1, 0)
        assert outcome.num_damaged == 1
        with pytest.raises(UnknownConversation):
            await rig.forgetting.forget("alone", silent)
        chain = make_chain(3, seed=1)
        await rig.say(chain, "again")
        assert sorted(path.name for path in directory.iterdir()) == ["again.bad", "again.conv"]
        assert (await rig.forgetting.forget("again", silent)).num_windows == 3
        assert list(directory.iterdir()) == []
        assert rig.stored(make_chain(3)) == 3
        assert (await rig.forgetting.collect(silent, unreferenced=True)).num_windows == 3

    run_with(tmp_path, before)
    for path in directory.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    run_with(tmp_path, after)


def test_what_a_turn_computed_that_failed_goes_though_its_beginning_is_shared(
    tmp_path: Path,
) -> None:
    """It is in no log; what others say behind the same windows is in theirs."""

    async def body(rig: Rig) -> None:
        base = make_chain(2)
        failed, theirs, running = (make_chain(2, base=base, seed=seed) for seed in (1, 2, 3))
        await rig.say(base, "story")
        await rig.say(base, "other")
        await rig.say(theirs, "longer")
        for chain in (failed, running):
            await seal(rig.memory, chain)
            await rig.memory.flush(chain.window_ids)
        with rig.conversations.answering("new", Running([*running.tokens, 1], MODEL)):
            gone = await rig.forgetting.forget("story", silent)
        assert gone.num_windows == 2
        assert [rig.stored(chain) for chain in (failed, theirs, running)] == [2, 4, 4]
        gone = await rig.forgetting.forget("longer", silent)
        assert gone.num_windows == 2
        assert rig.stored(running) == 4  # whose end was not longer's

    run_with(tmp_path, body)


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


async def trunk_and_branches(rig: Rig) -> tuple[Chain, Chain, Path]:
    """Two conversations behind one prefix; the second has a turn more, at the end of its file."""
    base = make_chain(2)
    story, other = (make_chain(3, base=base, seed=seed) for seed in (1, 2))
    await rig.say(story, "story")
    await rig.say(other, "other")
    path = rig.conversations._files._directory / "other.conv"
    longer = [*other.tokens, 1, 2]
    await talk(rig.conversations, longer, [3], turn_of("other", len(longer)), tip=other.tip)
    return story, other, path


@pytest.mark.parametrize("what", ["a turn", "all", "the disk"])
def test_one_that_is_damaged_holds_up_no_other(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is whole of it keeps what it uses; where nothing can be read, nobody waits for it."""

    async def body(rig: Rig) -> None:
        _, other, path = await trunk_and_branches(rig)
        if what == "the disk":  # which refuses to be read
            path.unlink()
            path.mkdir()
        else:
            damage(path, -1 if what == "a turn" else 0)
        gone = await rig.forgetting.forget("story", silent)
        assert gone.num_conversations == 1
        assert gone.num_damaged == 0
        num_shared = 2 if what == "a turn" else 0
        assert (gone.num_windows, gone.num_shared) == ({2: 3, 0: 8}[num_shared], num_shared)
        assert rig.stored(other) == (5 if num_shared else 0)
        is_aside = what != "the disk"
        assert (tmp_path / "conversations" / "other.bad").exists() == is_aside
        assert rig.conversations.counters["conversations_bad"] == is_aside
        assert ("other" in rig.conversations) == (what != "all")
        assert ("what other uses does not stay" in caplog.text) == (what == "the disk")

    run_with(tmp_path, body)


def test_one_that_is_answered_in_and_damaged_keeps_its_prompt(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        story, other, path = await trunk_and_branches(rig)
        with rig.conversations.answering("other", Running([*other.tokens, 1, 2])):
            damage(path, -1)
            gone = await rig.forgetting.forget("story", silent)
        assert (gone.num_windows, gone.num_shared) == (3, 5)
        assert (rig.stored(story), rig.stored(other)) == (2, 5)
        assert not (tmp_path / "conversations" / "other.bad").exists()

    run_with(tmp_path, body)


@pytest.mark.parametrize("at", [-1, 0])
def test_a_damaged_one_is_forgotten_and_said_to_be_damaged(tmp_path: Path, at: int) -> None:
    async def body(rig: Rig) -> None:
        story, _, path = await trunk_and_branches(rig)
        damage(path, at)
        gone = await rig.forgetting.forget("other", silent)
        assert (gone.num_conversations, gone.num_damaged) == (1, 1)
        assert gone.num_windows == (3 if at else 0)
        assert rig.conversations.names() == ["story"]
        assert [path.name for path in (tmp_path / "conversations").iterdir()] == ["story.conv"]
        left = await rig.forgetting.collect(silent, unreferenced=True)
        assert left.num_windows == (0 if at else 3)
        assert rig.stored(story) == 5

    run_with(tmp_path, body)


def test_a_start_that_finds_a_marked_one_sweeps_what_is_behind_holes(tmp_path: Path) -> None:
    torn = make_chain(3, seed=1)

    async def before(rig: Rig) -> None:
        for chain, name in ((make_chain(3), "gone"), (torn, "torn")):
            await rig.say(chain, name)
        rig.conversations.on_change = lambda: None
        with rig.conversations.hold("gone"):
            await rig.conversations.mark("gone")
        rig.store.forget([torn.window_ids[1]])  # as a crash in the middle leaves a chain

    async def after(rig: Rig) -> None:
        await until(lambda: set(rig.store.windows()) == {torn.window_ids[0]})
        assert rig.conversations.names() == ["torn"]
        assert not rig.conversations.marked()

    run_with(tmp_path, before)
    run_with(tmp_path, after)


def test_strays_are_swept_by_the_hour_until_they_are_gone(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        kept, stray = make_chain(3), make_chain(3, seed=1)
        await rig.say(kept, "kept")
        await seal(rig.memory, stray)
        await rig.memory.flush(stray.window_ids)
        real = rig.store.forget

        def failing(*_: object) -> Forgotten:
            raise StoreBroken("not now")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.forgetting.run_expiry)
            await settled()
            assert rig.stored(stray) == 3  # somebody's, as far as is known
            rig.conversations.strays = True
            rig.store.forget = failing  # type: ignore[method-assign,assignment]
            rig.clock.jump(HOUR_S)
            await settled()
            assert rig.conversations.strays
            rig.store.forget = real  # type: ignore[method-assign]
            rig.clock.jump(HOUR_S)
            await until(lambda: rig.stored(stray) == 0)
            await settled()
            nursery.cancel_scope.cancel()
        assert not rig.conversations.strays
        assert rig.stored(kept) == 3

    run_with(tmp_path, body)


def test_a_mistake_ends_neither_the_task_nor_the_one_who_asked(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        await rig.say(make_chain(3), "gone")
        real = rig.forgetting._looking.with_conversations

        async def wrong(*_: object) -> object:
            raise ZeroDivisionError

        rig.forgetting._looking.with_conversations = wrong  # type: ignore[method-assign,assignment]
        with pytest.raises(GliaError, match="ZeroDivisionError"):
            await rig.forgetting.forget("gone", silent)
        rig.forgetting._looking.with_conversations = real  # type: ignore[method-assign]
        await rig.forgetting.forget("gone", silent)
        assert rig.conversations.names() == []

    run_with(tmp_path, body)


@pytest.mark.parametrize("when", ["waiting", "begun"])
def test_who_goes_away_before_it_began_has_asked_nothing(tmp_path: Path, when: str) -> None:
    async def body(rig: Rig) -> None:
        for seed, name in ((1, "first"), (2, "second")):
            await rig.say(make_chain(3, seed=seed), name)
        reading = trio.Event()
        real = rig.forgetting._looking.with_conversations

        async def slow(names: list[str], tell: object) -> object:
            if names == ["first"]:
                await reading.wait()
            return await real(names, tell)  # type: ignore[arg-type]

        rig.forgetting._looking.with_conversations = slow  # type: ignore[method-assign,assignment]
        gone = {"first"} if when == "waiting" else {"first", "second"}
        async with trio.open_nursery() as nursery:
            scopes = []
            for name in ("first", "second"):
                scopes.append(trio.CancelScope())
                nursery.start_soon(asking, rig, scopes[-1], name)
                await trio.testing.wait_all_tasks_blocked()
            scopes[0 if when == "begun" else 1].cancel()
            await trio.testing.wait_all_tasks_blocked()
            reading.set()
            await until(lambda: set(rig.conversations.names()) == {"first", "second"} - gone)
        await settled()
        assert set(rig.conversations.names()) == {"first", "second"} - gone

    run_with(tmp_path, body)


async def asking(rig: Rig, scope: trio.CancelScope, name: str) -> None:
    with scope:
        await rig.forgetting.forget(name, silent)


def test_what_others_came_to_reach_while_it_was_looked_up_stays(tmp_path: Path) -> None:
    """While the look-up is on, a conversation gets the first two windows, a request three."""

    async def body(rig: Rig) -> None:
        chain = make_chain(6)
        await rig.say(chain, "gone")
        real = rig.memory.store.children
        count = 0

        def children(name: WindowId) -> list[WindowId]:
            nonlocal count
            count += 1
            if count == 1:  # others' logs were read before this
                trio.from_thread.run(other)
            return real(name)

        async def other() -> None:
            tokens = list(chain.tokens[:33])
            await talk(rig.conversations, tokens, [5], turn_of("other"), tip=chain.window_ids[1])
            running.tokens += chain.tokens[:49]
            running.model_id = ModelId(MODEL)

        async def forget() -> None:
            outcome = await rig.forgetting.forget("gone", silent)
            assert (outcome.num_windows, outcome.num_shared) == (6 - num_saved, num_saved)
            assert set(rig.store.windows()) == set(chain.window_ids[:num_saved])

        running, num_saved = Running([]), 3
        rig.store.children = children  # type: ignore[method-assign]
        with rig.conversations.answering("running", running):
            await forget()
        await rig.say(chain, "gone")
        running, num_saved, count = Running([]), 2, 0
        with rig.conversations.hold("other"):
            await rig.conversations.mark("other")
            await rig.conversations.remove("other")
        await forget()

    run_with(tmp_path, body)


def test_what_a_guest_seals_behind_it_while_it_is_looked_up_goes_too(tmp_path: Path) -> None:
    """A child during the look-up; a child of that when the others are hidden already."""

    async def body(rig: Rig) -> None:
        chain = make_chain(4)
        child = make_chain(1, base=chain, seed=1)
        grandchild = make_chain(1, base=child, seed=2)
        await rig.say(chain, "gone")
        real, late = rig.memory.store.children, [child, grandchild]

        def children(name: WindowId) -> list[WindowId]:
            found = real(name)
            if name == chain.tip and late:
                trio.from_thread.run(seal_last, rig.memory, late.pop(0))
            return found

        rig.store.children = children  # type: ignore[method-assign]
        outcome = await rig.forgetting.forget("gone", silent)
        assert not late
        assert outcome.num_windows == 6
        await rig.memory.writer.flush_all()
        assert list(rig.store.windows()) == []
        assert len(rig.memory.table) == 0

    run_with(tmp_path, body)


def test_what_was_leased_while_it_was_looked_up_is_not_forgotten(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chain = make_chain(4)
        child = make_chain(1, base=chain, seed=1)
        await rig.say(chain, "gone")
        real, late = rig.memory.store.children, [child]
        held: dict[int, tuple[WindowId, ...]] = {}
        rig.memory.leases.add("pid 5", held)

        def children(name: WindowId) -> list[WindowId]:
            found = real(name)
            if name == chain.tip and late:
                held[1] = (child.tip,)
                trio.from_thread.run(seal_last, rig.memory, late.pop())
            return found

        rig.store.children = children  # type: ignore[method-assign]
        with pytest.raises(ConversationBusy, match="pid 5"):
            await rig.forgetting.forget("gone", silent)
        assert rig.conversations.names() == ["gone"]
        assert child.tip not in rig.memory.hidden
        held.clear()
        assert (await rig.forgetting.forget("gone", silent)).num_windows == 5

    run_with(tmp_path, body)


def test_a_sweep_leaves_what_is_continued_while_it_looks(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        base, other = make_chain(3), make_chain(2, seed=2)
        longer = make_chain(1, base=base, seed=1)
        for chain in (base, other):
            await seal(rig.memory, chain)
            await rig.memory.flush(chain.window_ids)
        await rig.memory.evict()
        real, late = rig.store.get, [longer]

        def get(name: WindowId) -> object:
            if late:
                trio.from_thread.run(seal_last, rig.memory, late.pop())
                trio.from_thread.run(rig.memory.writer.flush_all)
            return real(name)

        rig.store.get = get  # type: ignore[method-assign,assignment]
        outcome = await rig.forgetting.collect(silent, unreferenced=True)
        assert outcome.num_windows == 2
        assert set(rig.store.windows()) == set(longer.window_ids)

    run_with(tmp_path, body)


def test_a_sweep_takes_what_is_behind_holes_and_leaves_what_is_used(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        torn, whole, dirty = (make_chain(5, seed=seed) for seed in (1, 2, 3))
        for chain in (torn, whole):
            await seal(rig.memory, chain)
            await rig.memory.flush(chain.window_ids)
        await rig.memory.evict()
        rig.store.forget([torn.window_ids[1]])
        rig.store.mood = lambda _: StoreBroken("not now")
        await seal(rig.memory, dirty)
        await rig.memory.writer.flush_all()
        outcome = await rig.forgetting.collect(silent, unreferenced=False)
        assert (outcome.num_conversations, outcome.num_windows) == (0, 3)
        assert set(rig.store.windows()) == {torn.window_ids[0], *whole.window_ids}
        assert all(name in rig.memory.table for name in dirty.window_ids)
        outcome = await rig.forgetting.collect(silent, unreferenced=True)
        assert outcome.num_windows == 6 + 5  # what L2 had no room for is nobody's, either
        assert list(rig.store.windows()) == []
        assert rig.memory.table.names() == []
        rig.store.mood = lambda _: None
        with pytest.raises(NotFound):
            await rig.memory.flush(dirty.window_ids)

    run_with(tmp_path, body)


@pytest.mark.parametrize("use", ["leased", "being written", "refused"])
def test_a_sweep_leaves_what_stands_before_what_is_used(tmp_path: Path, use: str) -> None:
    async def body(rig: Rig) -> None:
        base = make_chain(3)
        longer = make_chain(2, base=base, seed=1)
        await seal(rig.memory, base)
        await rig.memory.flush(base.window_ids)
        gate = threading.Event()
        if use == "refused":
            rig.store.mood = lambda _: StoreBroken("not now")
        elif use == "being written":
            rig.store.mood = lambda _: None if gate.wait(DEADLINE_S) else StoreBroken("late")
            rig.clock.rate = 20.0  # a disk that hangs is waited for some seconds
        await seal(rig.memory, longer)
        if use != "being written":
            await rig.memory.writer.flush_all()
        if use == "leased":
            await rig.memory.loader.pin(BINDING, longer.window_ids[3:4])
        outcome = await rig.forgetting.collect(silent, unreferenced=True)
        gate.set()
        assert outcome.num_windows == {"leased": 1, "being written": 0, "refused": 5}[use]
        assert rig.stored(base) == (0 if use == "refused" else 3)
        assert (longer.window_ids[3] in rig.memory.table) == (use != "refused")

    run_with(tmp_path, body)


def test_all_at_once_where_one_is_leased_goes_one_by_one(tmp_path: Path) -> None:
    async def body(rig: Rig) -> None:
        chains = [make_chain(2, seed=seed) for seed in range(3)]
        names = [await rig.say(chain) for chain in chains]
        held: dict[int, tuple[WindowId, ...]] = {1: tuple(chains[1].window_ids)}
        rig.memory.leases.add("pid 5", held)
        with pytest.raises(ConversationBusy, match="pid 5"):
            await rig.forgetting.forget(names[1], silent)
        outcome = await rig.forgetting.collect(silent, unreferenced=False)
        assert outcome.num_conversations == 2
        assert rig.conversations.names() == [names[1]]
        assert [rig.stored(chain) for chain in chains] == [0, 2, 0]
        held.clear()
        assert (await rig.forgetting.collect(silent, unreferenced=False)).num_conversations == 1

    run_with(tmp_path, body, ConversationsConfig(max_anonymous=0))


def test_one_that_cannot_be_read_holds_up_no_other_that_expires(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(rig: Rig) -> None:
        chains = [make_chain(2, seed=seed) for seed in range(3)]
        names = [await rig.say(chain) for chain in chains]
        path = tmp_path / "conversations" / f"{names[1]}.conv"
        whole = path.read_bytes()
        path.unlink()
        path.mkdir()  # as if the disk refused
        gone = await rig.forgetting.collect(silent, unreferenced=False)
        assert gone.num_conversations == 2
        assert [rig.stored(chain) for chain in chains] == [0, 2, 0]
        assert "not forgotten now" in caplog.text
        path.rmdir()
        path.write_bytes(whole)
        real, rig.store.forget = rig.store.forget, broken  # type: ignore[method-assign]
        with pytest.raises(StoreBroken, match="the disk is gone"):
            await rig.forgetting.collect(silent, unreferenced=False)
        await settled()  # it was tried again by itself
        rig.store.forget = real  # type: ignore[method-assign]
        gone = await rig.forgetting.collect(silent, unreferenced=False)
        assert (gone.num_conversations, rig.stored(chains[1])) == (1, 0)

    def broken(*_: object) -> Forgotten:
        raise StoreBroken("the disk is gone")

    run_with(tmp_path, body, ConversationsConfig(max_anonymous=0))


def published_of(rig: Rig, chain: Chain) -> int:
    return sum(rig.published.record(name) is not None for name in chain.window_ids)


def test_what_is_published_for_good_stays_and_is_counted(tmp_path: Path) -> None:
    base = make_chain(3)
    story, other = make_chain(2, base=base, seed=1), make_chain(2, seed=2)

    async def body(rig: Rig) -> None:
        for name, chain in (("story", story), ("other", other)):
            await rig.say(chain, name)
        rig.published.put(base.records, (), int(rig.now_s()) + 60)
        rig.clock.jump(61)
        gone = await rig.forgetting.forget("story", silent)
        assert (gone.num_windows, gone.num_shared, gone.num_published) == (2, 0, 3)
        assert rig.stored(story) == 3
        assert published_of(rig, base) == 3
        gone = await rig.forgetting.collect(silent, unreferenced=True)
        assert gone.num_windows == 0
        assert (rig.stored(base), rig.stored(other)) == (3, 2)

    run_with(tmp_path, body)


def test_before_its_hold_is_over_it_is_taken_back(tmp_path: Path) -> None:
    base = make_chain(3)
    story = make_chain(2, base=base, seed=1)

    async def body(rig: Rig) -> None:
        await rig.say(story, "story")
        rig.published.put(base.records, (), int(rig.now_s()) + 60)
        rig.clock.jump(58)
        gone = await rig.forgetting.forget("story", silent)
        assert (gone.num_windows, gone.num_published) == (5, 0)
        assert (rig.stored(story), published_of(rig, story)) == (0, 0)

    run_with(tmp_path, body)


def test_what_another_conversation_reaches_is_not_taken_back(tmp_path: Path) -> None:
    base = make_chain(3)
    story, other = (make_chain(2, base=base, seed=n) for n in (1, 2))

    async def body(rig: Rig) -> None:
        for name, chain in (("story", story), ("other", other)):
            await rig.say(chain, name)
        rig.published.put(story.records[:4], (), int(rig.now_s()) + 60)
        gone = await rig.forgetting.forget("story", silent)
        assert (gone.num_windows, gone.num_shared, gone.num_published) == (2, 3, 0)
        assert published_of(rig, story) == 3

    run_with(tmp_path, body)
