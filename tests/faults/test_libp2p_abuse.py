"""F11-F14, F23: peers that ask for more than there is, against a libp2p node of ours."""

from __future__ import annotations

import math
import os
import secrets
import struct
from contextlib import AsyncExitStack, suppress

import psutil
import pytest
import trio
import varint
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.stream_muxer.yamux.yamux import TYPE_DATA, YAMUX_HEADER_FORMAT

from p2p.host import Limits
from p2p.libp2p.caps import KAD_PROTOCOL, MAX_KAD_MESSAGE_BYTES
from tests.libp2p_nodes import Node, guarded_node
from tests.libp2p_scenarios import STALL, echoes, pair, send_kad
from tests.pace import Stopwatch

IS_FULL = bool(os.environ.get("GLIA_FULL"))
MIB = 1024 * 1024
PUSH = TProtocol("/ipfs/id/push/1.0.0")


def check(name: str, value: float, limit: float) -> None:
    """At most the limit; the figure is told in any case."""
    print(f"{name} {value:.4g} {limit:g} {'pass' if value <= limit else 'fail'}")
    assert value <= limit, f"{name}: {value} > {limit}"


def rss_bytes() -> int:
    found: int = psutil.Process().memory_info().rss
    return found


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


async def new_guarded(stack: AsyncExitStack, num: int) -> list[Node]:
    limits = Limits(max_connections_per_address=128)
    return [await stack.enter_async_context(guarded_node(limits)) for _ in range(num)]


@pytest.mark.fault("F11")
@pytest.mark.parametrize("protocol", [None, KAD_PROTOCOL, PROTOCOL_ID_V11, PUSH])
def test_a_length_that_lies_is_refused_before_anything_is_allocated(protocol: str | None) -> None:
    lengths = [2**31, 2**63 - 1, MAX_KAD_MESSAGE_BYTES + 1] * (1000 if IS_FULL else 10)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            one, victim = await pair(stack, guarded_node)
            for at, length in enumerate(lengths):
                if at == 6:
                    before = rss_bytes()
                stream = await _opened(one, victim, protocol)
                with trio.fail_after(60), suppress(Exception):
                    await stream.write(varint.encode(length))
                    while await stream.read(1000):
                        pass
                await stream.reset()
            check("F11 rss growth, MiB", (rss_bytes() - before) / MIB, 2)
            assert await echoes(one, victim)

    trio.run(main)


async def _opened(one: Node, victim: Node, protocol: str | None) -> INetStream:
    """A stream of a protocol, or one that agrees on none yet."""
    peer = victim.host.get_id()
    if protocol is None:
        return await one.host.get_network().new_stream(peer)
    return await one.host.new_stream(peer, [TProtocol(protocol)])


@pytest.mark.fault("F12")
def test_a_peer_that_ignores_flow_control_is_closed() -> None:
    num_frames = (256 if IS_FULL else 32) * MIB // 65_536

    async def main() -> None:
        async with AsyncExitStack() as stack:
            one, victim = await pair(stack, guarded_node)
            honest = await stack.enter_async_context(guarded_node())
            await honest.connect(victim)
            stream = await one.host.new_stream(victim.host.get_id(), [STALL])
            number = stream.muxed_stream.stream_id  # type: ignore[attr-defined]
            header = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_DATA, 0, number, 65_536)
            frame, muxer = header + bytes(65_536), one.muxer(victim)
            before, watch = rss_bytes(), Stopwatch()
            with suppress(Exception):
                for _ in range(num_frames):
                    await muxer._write_frame(frame)
            with trio.fail_after(60):
                while victim.is_connected(one):
                    await trio.sleep(0.01)
            check("F12 closed after, s", watch.took_s(), 1)
            check("F12 rss growth, MiB", (rss_bytes() - before) / MIB, 32)
            assert await echoes(honest, victim)

    trio.run(main)


@pytest.mark.fault("F13")
@pytest.mark.parametrize(("num_peers", "num_streams", "share"), [(1, 12, 0.99), (10, 10, 0.90)])
def test_idle_streams_of_the_directory_stop_no_query(
    num_peers: int, num_streams: int, share: float
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            victim, undisturbed, honest, *attackers = await new_guarded(stack, 3 + num_peers)
            for each in (honest, *attackers):
                await each.connect(victim)
            await honest.connect(undisturbed)
            async with trio.open_nursery() as nursery:
                for each in attackers:
                    for _ in range(num_streams):
                        nursery.start_soon(_hold_stream, each, victim)
                await trio.sleep(0.3)
                took_s = await _queries(honest, victim, undisturbed, math.ceil(1.5 / (1 - share)))
                nursery.cancel_scope.cancel()
            failed = sum(math.isinf(each) for each in took_s) / len(took_s)
            check(f"F13 queries failed, {num_peers} peers", failed, 1 - share)
            check(f"F13 p95, s, {num_peers} peers", quantile(took_s, 0.95), 1)

    trio.run(main)


async def _hold_stream(one: Node, victim: Node) -> None:
    """Open an idle stream, and again whenever it is reset."""
    while True:
        with suppress(Exception):
            stream = await one.host.new_stream(victim.host.get_id(), [TProtocol(KAD_PROTOCOL)])
            await stream.read(1)
        await trio.sleep(0.2)


async def _queries(one: Node, victim: Node, undisturbed: Node, num: int) -> list[float]:
    """How long each takes the victim, of `num` at least; infinite where it fails.

    At the same moment another that nobody disturbs is asked: where it fails, too, it was
    the machine, and neither counts.
    """
    took_s: list[float] = []
    end_s = trio.current_time() + (60 if IS_FULL else 0)
    while trio.current_time() < end_s or len(took_s) < num:
        both = {victim: math.inf, undisturbed: math.inf}
        async with trio.open_nursery() as nursery:
            for each in both:
                nursery.start_soon(_query, one, each, both)
        if math.isfinite(both[undisturbed]):
            took_s.append(both[victim])
        await trio.sleep(0.01)
    return took_s


async def _query(one: Node, other: Node, took_s: dict[Node, float]) -> None:
    start_s = trio.current_time()
    with trio.move_on_after(2), suppress(Exception):
        stream = await one.host.new_stream(other.host.get_id(), [TProtocol(KAD_PROTOCOL)])
        await send_kad(stream, Message(type=Message.MessageType.PING))
        if await stream.read(1):
            took_s[other] = trio.current_time() - start_s
        await stream.reset()


@pytest.mark.fault("F14")
def test_idle_connections_of_one_address_keep_nobody_out() -> None:
    num_idle, num_tries = (600, 100) if IS_FULL else (150, 20)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            victim, honest = await new_guarded(stack, 2)
            port = int(victim.address().value_for_protocol("tcp") or 0)
            for _ in range(num_idle):
                stack.push_async_exit(await trio.open_tcp_stream("127.0.0.1", port))
            took_s = []
            for _ in range(num_tries):
                watch = Stopwatch()
                try:
                    await honest.connect(victim)
                    took_s.append(watch.took_s())
                except Exception:
                    took_s.append(math.inf)
                await honest.host.disconnect(victim.host.get_id())
            failed = sum(math.isinf(each) for each in took_s) / num_tries
            check("F14 connects failed", failed, 0.05)
            check("F14 slowest of 95 %, s", quantile(took_s, 0.95), 2)

    trio.run(main)


@pytest.mark.fault("F23")
def test_a_flood_of_gossip_that_is_not_signed_is_muted() -> None:
    for_s = 30.0 if IS_FULL else 3.0

    async def main() -> None:
        async with AsyncExitStack() as stack:
            flooder, victim, third = await new_guarded(stack, 3)
            heard: dict[Node, list[bytes]] = {victim: [], third: []}
            for node, messages in heard.items():
                join(node, messages)
            await third.connect(victim)
            await flooder.connect(victim)
            await trio.sleep(0.3)
            lags_s: list[float] = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_measure_lag, lags_s)
                muted_after_s = await _flood(flooder, victim, for_s)
                nursery.cancel_scope.cancel()
            check("F23 muted after, s", muted_after_s, 5)
            check("F23 lag p99, s", quantile(lags_s, 0.99), 0.1)
            check("F23 taken", len(heard[victim]), 0)
            check("F23 forwarded", len(heard[third]), 0)
            await publish_until(victim, b"honest", heard[third])

    trio.run(main)


def join(node: Node, heard: list[bytes]) -> None:
    assert node.network is not None
    node.network.gossip.join("topic", lambda sender, message: heard.append(message))


async def publish_until(node: Node, message: bytes, heard: list[bytes]) -> None:
    """Say it until it is heard."""
    assert node.network is not None
    with trio.fail_after(60):
        while message not in heard:
            await node.network.gossip.publish("topic", message)
            await trio.sleep(0.2)


async def _flood(one: Node, victim: Node, for_s: float) -> float:
    """10,000 messages a second; when the peer is muted, from the start."""
    key = one.host.get_id().to_bytes()
    start_s, muted_s = trio.current_time(), math.inf
    name = str(one.host.get_id())
    while trio.current_time() < start_s + for_s:
        with suppress(Exception):
            stream = await one.host.new_stream(victim.host.get_id(), [PROTOCOL_ID_V11])
            for _ in range(50):
                await stream.write(_forged(key, 100))
                await trio.sleep(0.01)
        now_s = trio.current_time()
        if math.isinf(muted_s) and victim.pubsub.muting.is_muted(name, now_s):  # type: ignore[attr-defined]
            muted_s = now_s - start_s
        await trio.sleep(0.01)
    return muted_s


def _forged(sender: bytes, num: int) -> bytes:
    messages = [
        rpc_pb2.Message(
            data=b"x" * 200,
            topicIDs=["glia/topic"],
            from_id=sender,
            seqno=secrets.token_bytes(8),
            signature=bytes(64),
        )
        for _ in range(num)
    ]
    data = rpc_pb2.RPC(publish=messages).SerializeToString()
    return bytes(varint.encode(len(data)) + data)


async def _measure_lag(lags_s: list[float]) -> None:
    while True:
        watch = Stopwatch()
        await trio.sleep(0.01)
        lags_s.append(watch.took_s() - 0.01)
