"""An exception at each await of the code that serves a local connection: nobody else notices."""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from daemon import node as node_module
from daemon.arena import SharedMemory
from daemon.claim_files import ClaimFiles
from daemon.config import ApiConfig, Config, EngineConfig, L1Config, L2Config
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.data_dir import prepare
from daemon.groups import open_groups
from daemon.memory import Memory
from daemon.neuron_key import neuron_signer
from daemon.parts import Parts
from daemon.paths import Paths
from daemon.preparing import Prepared
from daemon.server import Server, listen
from daemon.soul_state import SoulState
from glia.graph.ids import WindowId
from glia.local import messages as m
from glia.local import values
from glia.local.frames import FrameParser, decode_from_daemon, encode_frame
from glia.store.disk import DiskStore
from glia.store.keyring import Keyring
from glia.store.vault import Vault
from tests.builders import CLASS, MODEL, TINY, make_chain, make_tokens
from tests.injection import PLAN, Plan, driven, injecting
from tests.node_parts import MIB, payload_of

CHAIN = make_chain(4, seed=5)
PROMPT = [*make_tokens(40, seed=6)]


class Watched(Server):
    """The real server; the next connection can be one that things are thrown at."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.next_plan: Plan | None = None
        RIG.append((parts, self))

    async def _serve(self, sock: trio.socket.SocketType) -> None:
        plan, self.next_plan = self.next_plan, None
        if plan is None:
            await super()._serve(sock)
            return
        PLAN.set(plan)
        await driven(super()._serve(sock), plan)


RIG: list[tuple[Parts, Watched]] = []


class Peer:
    """A client or an engine in this very run."""

    def __init__(self, sock: trio.socket.SocketType) -> None:
        self._sock = sock
        self._parser = FrameParser()
        self._pending: list[Any] = []
        self._replies: dict[int, m.Reply] = {}
        self._next_id = 0
        self.fds: list[int] = []

    def id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def send(self, message: Any) -> None:
        await self._sock.send(encode_frame(message))

    async def receive(self) -> Any:
        """The next message. Raises: EOFError at the end."""
        while not self._pending:
            try:
                data, ancillary, *_ = await self._sock.recvmsg(65536, 64)
            except OSError as error:
                raise EOFError from error
            for _, _, fds in ancillary:
                self.fds += [int.from_bytes(fds[:4], "little")]
            if not data:
                raise EOFError
            self._pending += map(decode_from_daemon, self._parser.feed(data))
        return self._pending.pop(0)

    async def ask(self, call: Any) -> Any:
        """The reply to a call; events are passed over."""
        await self.send(call)
        return await self.until(call.id)

    async def until(self, call_id: int) -> Any:
        while call_id not in self._replies:
            message = await self.receive()
            if isinstance(message, m.Reply):
                self._replies[message.id] = message
        return self._replies.pop(call_id)

    def close(self) -> None:
        self._sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


class Node:
    """A whole node in this run, an engine attached to it, and an honest client."""

    def __init__(self, parts: Parts, server: Watched, path: Path, nursery: trio.Nursery) -> None:
        self.parts, self.server, self._path, self.nursery = parts, server, path, nursery
        self.honest: Peer
        self.engine = trio.CancelScope()

    async def connect(self, kind: str = "client", plan: Plan | None = None) -> Peer:
        self.server.next_plan = plan
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        await sock.connect(str(self._path))
        peer = Peer(sock)
        try:
            await peer.ask(m.Hello(peer.id(), m.PROTOCOL_VERSION, kind, "test"))
        except BaseException:
            peer.close()
            raise
        return peer

    def state(self) -> dict[str, Any]:
        """All that a connection could leave behind."""
        parts, table = self.parts, self.parts.memory.table
        return {
            "open": +self.server._num_open,
            "half open": len(self.server._half_open),
            "tasks": _num_tasks(trio.lowlevel.current_root_task()),
            "leases": len(parts.memory.leases._held),
            "pins": [name for name in table.names() if table.is_pinned(name)],
            "reserved": table.num_reserved,
            "dirty": table.dirty_bytes,
            "hidden": len(parts.memory.hidden._names),
            "staging": parts.areas._total_bytes,
            "busy": dict(parts.conversations._taken._why),
            "running": list(parts.conversations._taken.running),
            "runs": len(parts.runs._under_way),
            "weighed": parts.broker._num_tokens,
            "adding": len(parts.broker._adding),
            "checking": parts.checking.locked(),
            "engine calls": [len(link._calls) for link in parts.engines.links()],
            "jobs": len(parts.forgetting._jobs),
            "fds": _fds(),
            "threads": trio.to_thread.current_default_thread_limiter().borrowed_tokens,
        }

    async def quiet(self) -> dict[str, Any]:
        """The state once nobody does anything."""
        await trio.testing.wait_all_tasks_blocked(0.05)
        while self.state()["threads"]:
            await trio.testing.wait_all_tasks_blocked(0.05)
        gc.collect()
        return self.state()

    async def settled(self, expected: dict[str, Any], where: str) -> None:
        """Everything is as it was, soon."""
        with trio.move_on_after(60):
            while self.state() != expected:
                gc.collect()  # an exception and its frames are a cycle, which holds memory
                await trio.sleep(0.001)
        now = self.state()
        assert {k: v for k, v in now.items() if v != expected[k]} == {}, where

    async def is_unharmed(self) -> None:
        """The honest client is served as ever."""
        with trio.fail_after(60):
            status = await self.honest.ask(m.Status(self.honest.id()))
            assert isinstance(status, m.StatusReply)
            matched = await self.honest.ask(m.Match(self.honest.id(), list(CHAIN.tokens)))
            assert matched.windows == CHAIN.window_ids


def _fds() -> dict[str, int]:
    """Sockets and shared memory; the store's files come and go by themselves."""
    kinds = Counter[str]()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            kinds[os.readlink(f"/proc/self/fd/{fd}").split(":")[0]] += 1
    return {kind: kinds[kind] for kind in ("socket", "/memfd")}


def _num_tasks(task: trio.lowlevel.Task | None) -> int:
    if task is None:
        return 0
    return 1 + sum(_num_tasks(c) for n in task.child_nurseries for c in n.child_tasks)


@asynccontextmanager
async def running_node(tmp_path: Path) -> AsyncIterator[Node]:
    paths, models_dir = Paths(tmp_path / "node"), tmp_path / "models"
    models_dir.mkdir()
    (models_dir / "echo.model").write_text('source = "nowhere"\ndtype = "float32"\n')
    prepare(paths)
    config = Config(
        data_dir=paths.data_dir,
        models_dir=models_dir,
        l1=L1Config(size_bytes=MIB, staging_bytes=MIB, prefault_bytes=0),
        l2=L2Config(size_bytes=16 * MIB, segment_bytes=MIB),
        engine=EngineConfig(memory_bytes=2**40),
        api=ApiConfig(handshake_timeout_s=1.0),
    )
    arena = SharedMemory("f36", MIB, 0)
    store = DiskStore(paths.store, 16 * MIB, MIB)
    listener = listen(paths.socket)
    conversations = Conversations(ConversationFiles(paths.conversations), config.conversations)
    try:
        async with trio.open_nursery() as nursery:
            RIG.clear()
            vault = Vault(store, Keyring(tuple, lambda: bytes(32)))
            memory = Memory(arena, vault, 4)
            own = neuron_signer(paths.neuron_key).neuron
            soul = SoulState.read(paths.soul_state, lambda: own)
            groups = open_groups(paths, is_on_network=False)
            moves = ClaimFiles(soul)
            begun = Prepared(
                memory, conversations, soul, moves, listener, None, None, None, groups, vault, None
            )
            nursery.start_soon(node_module.run_node, config, ("nothing",), begun)
            while not RIG:
                await trio.sleep(0.001)
            node = Node(*RIG[0], paths.socket, nursery)
            await _settle_in(node)
            yield node
            node.engine.cancel()
            node.honest.close()
            node.parts.stopping.set()
    finally:
        listener.close()
        store.close()
        arena.close()


async def _settle_in(node: Node) -> None:
    """An honest client with windows of its own, and an engine."""
    node.honest = await node.connect()
    await _attach(node.honest)
    await _seal(node.honest)
    await node.honest.ask(m.Flush(node.honest.id(), list(CHAIN.window_ids)))
    await node.nursery.start(_engine, node)


async def _attach(peer: Peer, serves: str = "") -> Any:
    shapes = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
    profile = values.ProfileValue(TINY.block_size, TINY.scheme, TINY.mode, shapes)
    dtype = "float32" if serves else ""
    call = m.Attach(peer.id(), MODEL, profile, CLASS, serves, dtype, 4096, "/nowhere")
    assert isinstance(await peer.ask(call), m.Done)
    return call.id


async def _seal(peer: Peer, num: int = 4, seed: int = 5) -> list[WindowId]:
    chain = make_chain(num, seed=seed)
    size = num * TINY.window_payload_bytes
    assert isinstance(await peer.ask(m.Staging(peer.id(), size)), m.Done)
    os.pwrite(peer.fds[-1], b"".join(payload_of(chain, n) for n in range(num)), 0)
    sealed = await peer.ask(m.Seal(peer.id(), None, 0, list(chain.tokens), 0))
    return [WindowId(name) for name in sealed.windows]


async def _engine(node: Node, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    """Serves `echo`: one answer a request, slowly enough to be cancelled."""
    with node.engine:
        peer = await node.connect("engine")
        attach_id = await _attach(peer, "echo")
        await peer.send(m.Ready(attach_id, 1000, []))
        task_status.started()
        try:
            await _serve_runs(peer)
        finally:
            peer.close()


async def _serve_runs(peer: Peer) -> None:
    waiting: dict[int, m.Run] = {}
    while True:
        call = await peer.receive()
        if isinstance(call, m.Run):
            await peer.send(m.Progress(call.id, "prefill", 1, 2))
            await peer.send(m.Emitted(call.id, [9]))
            if call.max_tokens == 1:
                await peer.send(_answer(call, [9], "length"))
            else:
                waiting[call.id] = call
        elif isinstance(call, m.CancelRun):
            await peer.send(m.Done(call.id))
            if call.target in waiting:
                await peer.send(_answer(waiting.pop(call.target), [9], "cancelled"))
        elif isinstance(call, m.EvictL0 | m.ForgetL0):
            await peer.send(m.EvictReply(call.id, 0, 0))


def _answer(call: m.Run, tokens: list[int], reason: str) -> m.Generated:
    usage = values.UsageValue(len(call.tokens), 1, values.CachedValue(), len(call.tokens))
    return m.Generated(call.id, tokens, reason, None, usage, 1.0, {})


def _generate(peer: Peer, name: str, max_tokens: int = 1, keep: int = 0) -> m.Generate:
    turn = values.TurnValue(name, keep)
    sampling = values.SamplingValue()
    tokens = PROMPT if not keep else [*PROMPT, 9, 8]
    return m.Generate(peer.id(), "echo", None, tokens, max_tokens, sampling, [], [], turn=turn)


# -- what a connection does -----------------------------------------------------------------


async def people_ask(node: Node, peer: Peer) -> None:
    calls = [m.Status, m.Models, m.Conversations, m.Runs]
    for call in calls:
        await peer.ask(call(peer.id()))
    await peer.ask(m.Chain(peer.id(), CHAIN.tip))
    await peer.ask(m.Explain(peer.id(), "echo", None, PROMPT))
    await peer.ask(m.Evict(peer.id(), "l1"))
    await peer.ask(m.Evict(peer.id(), "l0"))
    await peer.ask(m.Check(peer.id()))
    await peer.ask(m.Gc(peer.id()))


async def a_guest_works(node: Node, peer: Peer) -> None:
    await _attach(peer)
    await peer.ask(m.Match(peer.id(), list(CHAIN.tokens)))
    names = await _seal(peer, 6, seed=7)
    lease = await peer.ask(m.Lease(peer.id(), list(CHAIN.window_ids)))
    await peer.ask(m.Flush(peer.id(), list(names)))
    await peer.ask(m.Evict(peer.id(), "l1"))
    await peer.ask(m.Lease(peer.id(), list(names)))
    await peer.ask(m.Release(peer.id(), lease.lease))
    await peer.ask(m.Flush(peer.id(), [bytes(32)]))
    await peer.ask(m.Lease(peer.id(), [bytes(32)]))
    await peer.ask(m.Seal(peer.id(), names[-1], 96, PROMPT[:16], 0))
    await peer.ask(m.Status(peer.id()))


async def a_conversation_goes_on(node: Node, peer: Peer) -> None:
    await peer.ask(_generate(peer, "talk"))
    await peer.ask(_generate(peer, "talk", keep=41))
    await peer.ask(m.ReadConversation(peer.id(), "talk"))
    await peer.ask(m.Fork(peer.id(), "talk", "fork"))
    await peer.ask(_generate(peer, "fork", keep=41))
    await peer.ask(_generate(peer, ""))
    slow = _generate(peer, "slow", max_tokens=5)
    await peer.send(slow)
    while not isinstance(await peer.receive(), m.Emitted):
        pass
    await peer.ask(m.Cancel(peer.id(), slow.id))
    await peer.until(slow.id)
    slow = _generate(peer, "left", max_tokens=5)
    await peer.send(slow)
    while not isinstance(await peer.receive(), m.Emitted):
        pass


async def it_is_forgotten(node: Node, peer: Peer) -> None:
    await peer.ask(_generate(peer, "talk"))
    await peer.ask(m.Forget(peer.id(), "talk"))
    await peer.ask(m.Gc(peer.id()))


async def after(node: Node) -> None:
    """What a scenario has said is forgotten, so that the next round is like it."""
    for name in [*node.parts.conversations.names(), *node.parts.conversations.marked()]:
        with trio.fail_after(60):
            reply = await node.honest.ask(m.Forget(node.honest.id(), name))
            assert isinstance(reply, m.ForgetReply | m.Failed)
    honest = node.honest
    lease = await honest.ask(m.Lease(honest.id(), list(CHAIN.window_ids)))
    assert len(lease.tiers) == len(CHAIN.window_ids)
    await honest.ask(m.Release(honest.id(), lease.lease))


Scenario = Callable[[Node, Peer], Awaitable[None]]


async def once(node: Node, scenario: Scenario, plan: Plan) -> None:
    """One connection that does it, with an exception at one of its awaits."""
    with trio.fail_after(60):
        try:
            peer = await node.connect("client", plan)
        except EOFError:
            return
        try:
            await scenario(node, peer)
        except (EOFError, OSError):
            pass
        finally:
            peer.close()


async def many_at_once(node: Node, peer: Peer) -> None:
    """Calls of all kinds that wait for each other, some of them refused."""
    await _attach(peer)
    calls: list[Any] = [
        m.Attach(peer.id(), MODEL, values.ProfileValue(16, 1, 1, []), CLASS),
        m.Staging(peer.id(), 2 * MIB),
        m.Match(peer.id(), PROMPT),
        m.Lease(peer.id(), list(CHAIN.window_ids)),
        m.Chain(peer.id(), bytes(32)),
        m.Evict(peer.id(), "l7"),
        m.Forget(peer.id(), "nobody"),
        m.Fork(peer.id(), "nobody", "other"),
        m.AddModel(peer.id(), "echo", 'source = "x"'),
        m.AddModel(peer.id(), "broken", 'source = "x"'),
        m.Models(peer.id()),
        m.Check(peer.id()),
        m.Status(peer.id()),
    ]
    slow = _generate(peer, "slow", max_tokens=5)
    for call in (*calls, slow):
        await peer.send(call)
    await peer.send(m.Cancel(peer.id(), slow.id))
    waited = {call.id for call in (*calls, slow)}
    while waited:
        message = await peer.receive()
        if isinstance(message, m.Reply):
            waited.discard(message.id)


SCENARIOS: dict[str, Scenario] = {
    "many at once": many_at_once,
    "people ask": people_ask,
    "a guest works": a_guest_works,
    "a conversation goes on": a_conversation_goes_on,
    "it is forgotten": it_is_forgotten,
}


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(node_module, "Server", Watched)
    logging.disable(logging.CRITICAL)  # a kept record keeps frames, and with them memory
    yield
    logging.disable(logging.NOTSET)


async def at_each_await(node: Node, live: Callable[[Plan], Awaitable[None]]) -> int:
    """A life of a connection for each of its awaits. Returns how many were thrown at."""
    expected = await node.quiet()
    num_thrown = 0
    while True:
        plan = Plan(num_thrown)
        await live(plan)
        if not plan.where:
            assert plan.num_seen <= plan.at  # it has no await there any more
            return num_thrown
        num_thrown += 1
        await node.is_unharmed()
        await after(node)
        await node.settled(expected, plan.where)


@pytest.mark.fault("F36")
def test_an_exception_at_each_await_of_a_connection_is_its_own(tmp_path: Path) -> None:
    """Requests to an engine that dies end with an error; the next engine answers them again."""
    counts: dict[str, int] = {}

    async def main() -> None:
        async with running_node(tmp_path) as node:
            for name, scenario in SCENARIOS.items():
                await once(node, scenario, Plan(-1))  # the first has things to set up
                await after(node)
                counts[name] = await at_each_await(node, partial(once, node, scenario))
            node.engine.cancel()
            while node.parts.engines.links():
                await trio.sleep(0.001)
            counts["an engine"] = await at_each_await(node, partial(_live_and_die, node))

    with injecting():
        trio.run(main)
    assert sum(counts.values()) >= 200, counts  # SECURITY.md's figure


async def _live_and_die(node: Node, plan: Plan) -> None:
    """An engine attaches, is asked by the honest client, and goes away."""
    honest = node.honest
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as node.engine:
                await nursery.start(_victim, node, plan)
            if not node.parts.engines.links():
                nursery.cancel_scope.cancel()
                return
            reply = await honest.ask(_generate(honest, "talk"))
            assert isinstance(reply, m.Generated | m.Failed)
            slow = _generate(honest, "slow", max_tokens=5)
            await honest.send(slow)
            await honest.ask(m.Evict(honest.id(), "l0"))
            await honest.send(m.Cancel(honest.id(), slow.id))
            reply = await honest.until(slow.id)
            assert isinstance(reply, m.Generated | m.Failed)
            await honest.ask(m.Forget(honest.id(), "talk"))
            nursery.cancel_scope.cancel()


async def _victim(node: Node, plan: Plan, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
    peer = None
    try:
        peer = await node.connect("engine", plan)
        attach_id = await _attach(peer, "echo")
        await peer.send(m.Ready(attach_id, 1000, []))
        await node.quiet()  # it can be asked now, or it has been thrown at
        task_status.started()
        await _serve_runs(peer)
    except (EOFError, OSError, AssertionError):
        with suppress(RuntimeError):
            task_status.started()
    finally:
        if peer is not None:
            peer.close()
