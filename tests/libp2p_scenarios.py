"""What a peer may do to a libp2p node, each with whether the node withstands it.

`python -m tests.libp2p_scenarios` asks the library without guards, and prints what it does
not withstand: the guards are there for a reason, and that they hold is no accident.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import trio
import varint
from libp2p.abc import INetStream
from libp2p.custom_types import TProtocol
from libp2p.kad_dht.common import PROTOCOL_ID as PUBLIC_KAD
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.stream_muxer.yamux.yamux import YAMUX_HEADER_FORMAT

from tests.libp2p_nodes import MAX_CONNECTIONS, NewNode, Node, bare_node

ECHO = TProtocol("/test/echo/1")
STALL = TProtocol("/test/stall/1")
_DATA, _SYN = 0, 1
Scenario = Callable[[NewNode], Awaitable[bool]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(ask: Scenario) -> Scenario:
    """One that is asked of both."""
    SCENARIOS[ask.__name__] = ask
    return ask


async def echo(stream: INetStream) -> None:
    while data := await stream.read(4096):
        await stream.write(data)


async def stall(stream: INetStream) -> None:
    await trio.sleep_forever()


def serve(
    node: Node, protocol: TProtocol, handler: Callable[[INetStream], Awaitable[None]]
) -> None:
    """Set a handler as that kind of node sets its own."""
    if node.network is None:
        node.host.set_stream_handler(protocol, handler)
    else:
        node.network._basic.serve(protocol, handler, 64, 60.0)


def patience_s(node: Node) -> float:
    """The library alone is not waited for on a slow machine: it is to fail."""
    return 3.0 if node.network is None else 30.0


async def echoes(node: Node, other: Node) -> bool:
    """Whether `other` still answers `node`."""
    with trio.move_on_after(patience_s(other)):
        stream = await node.host.new_stream(other.host.get_id(), [ECHO])
        await stream.write(b"hello")
        answer = await stream.read(5)
        await stream.reset()
        return answer == b"hello"
    return False


async def pair(stack: AsyncExitStack, new: NewNode) -> tuple[Node, Node]:
    """Two that are connected; the second is the victim and echoes."""
    one, victim = await stack.enter_async_context(new()), await stack.enter_async_context(new())
    serve(victim, ECHO, echo)
    serve(victim, STALL, stall)
    await one.connect(victim)
    return one, victim


async def is_dropped(one: Node, victim: Node) -> bool:
    """Whether the victim closes the connection."""
    with trio.move_on_after(patience_s(victim)):
        while victim.is_connected(one):
            await trio.sleep(0.01)
        return True
    return False


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(YAMUX_HEADER_FORMAT, 0, kind, flags, stream, len(body)) + body


@scenario
async def a_handler_that_raises(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)

        async def fail(stream: INetStream) -> None:
            raise ValueError("bug")

        serve(victim, TProtocol("/test/fail/1"), fail)
        await one.host.new_stream(victim.host.get_id(), [TProtocol("/test/fail/1")])
        await trio.sleep(0.2)
        return await echoes(one, victim)


@scenario
async def cancelled_writes(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        for at in range(20):
            stream = await one.host.new_stream(victim.host.get_id(), [STALL])
            with trio.move_on_after(0.0005 * at):
                await stream.write(bytes(200_000))
            await stream.reset()
            if not await echoes(one, victim):
                return False
        return True


@scenario
async def a_flood_beyond_its_window(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        stream = await one.host.new_stream(victim.host.get_id(), [STALL])
        number = stream.muxed_stream.stream_id  # type: ignore[attr-defined]
        muxer = one.muxer(victim)
        with suppress(Exception):  # once it is dropped
            for _ in range(160):  # 10 MiB
                await muxer._write_frame(frame(_DATA, 0, number, bytes(65_536)))
        return await is_dropped(one, victim)


@scenario
async def a_flood_of_streams(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        muxer = one.muxer(victim)
        with suppress(Exception):  # once it is dropped
            for number in range(1001, 3001, 2):
                await muxer._write_frame(frame(1, _SYN, number, b""))
        return await is_dropped(one, victim)


@scenario
async def silent_connections(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        honest, victim = (
            await stack.enter_async_context(new()),
            await stack.enter_async_context(new()),
        )
        serve(victim, ECHO, echo)
        port = int(victim.address().value_for_protocol("tcp") or 0)
        for _ in range(MAX_CONNECTIONS + 20):
            stack.push_async_exit(await trio.open_tcp_stream("127.0.0.1", port))
        await trio.sleep(0.2)
        with trio.move_on_after(patience_s(victim)):
            await honest.connect(victim)
            return await echoes(honest, victim)
        return False


@scenario
async def peers_that_come_and_go(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        for _ in range(MAX_CONNECTIONS + 2):
            await one.host.disconnect(victim.host.get_id())
            with trio.move_on_after(patience_s(victim)) as scope:
                while victim.is_connected(one):
                    await trio.sleep(0.01)
                await one.connect(victim)
            if scope.cancelled_caught:
                return False
        return await echoes(one, victim)


@scenario
async def a_dial_that_waits_for_nothing(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        took_s = []
        for _ in range(5):
            await one.host.disconnect(victim.host.get_id())
            await trio.sleep(0.2)
            start_s = trio.current_time()
            await one.connect(victim)
            took_s.append(trio.current_time() - start_s)
        return min(took_s) < 0.2


@scenario
async def an_address_that_was_heard_of(new: NewNode) -> bool:
    """Nobody asked for a connection to it."""
    async with AsyncExitStack() as stack:
        one, victim = await stack.enter_async_context(new()), await stack.enter_async_context(new())
        swarm = victim.host.get_network()
        assert isinstance(swarm, Swarm)
        swarm.peerstore.add_addrs(one.host.get_id(), [one.address()], 3600)
        await swarm.auto_connector.maybe_connect()
        await trio.sleep(0.5)
        return not victim.is_connected(one)


@scenario
async def idle_streams_of_the_directory(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        honest = await stack.enter_async_context(new())
        await honest.connect(victim)
        kad = kad_protocol(victim)
        for _ in range(12):
            try:
                await one.host.new_stream(victim.host.get_id(), [kad])
            except Exception:
                break
        await trio.sleep(0.2)
        with trio.move_on_after(patience_s(victim)):
            stream = await honest.host.new_stream(victim.host.get_id(), [kad])
            await send_kad(stream, Message(type=Message.MessageType.PING))
            return bool(await stream.read(1))
        return False


@scenario
async def a_peer_that_asked_and_went(new: NewNode) -> bool:
    """Nobody is sent to it."""
    async with AsyncExitStack() as stack:
        victim = await stack.enter_async_context(new())
        async with new() as one:
            await one.connect(victim)
            stream = await one.host.new_stream(victim.host.get_id(), [kad_protocol(victim)])
            key = one.host.get_id().to_bytes()
            await send_kad(stream, Message(type=Message.MessageType.FIND_NODE, key=key))
            await stream.read(1)
        with trio.move_on_after(patience_s(victim)):
            while victim.is_connected(one):
                await trio.sleep(0.01)
        return not victim.kad.routing_table.find_local_closest_peers(key, 20)


@scenario
async def the_public_directory(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        try:
            await one.host.new_stream(victim.host.get_id(), [TProtocol("/ipfs/kad/1.0.0")])
        except Exception:
            return True
        return False


@scenario
async def a_large_message_of_the_directory(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        stream = await one.host.new_stream(victim.host.get_id(), [kad_protocol(victim)])
        await stream.write(varint.encode(64 * 1024 + 1))
        with trio.move_on_after(patience_s(victim)):
            try:
                await stream.read(1)
            except Exception:
                return True  # it was reset, and not a byte of it waited for
        return False


@scenario
async def a_record_of_no_namespace(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        message = Message(type=Message.MessageType.PUT_VALUE, key=b"anything")
        message.record.key, message.record.value = b"anything", b"at all"
        stream = await one.host.new_stream(victim.host.get_id(), [kad_protocol(victim)])
        await send_kad(stream, message)
        try:
            return not await stream.read(1)
        except Exception:
            return victim.kad.value_store.get(b"anything") is None


@scenario
async def many_keys_of_one_provider(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(new())
        provider = PeerInfo(ID(b"\x12\x20" + bytes(32)), [node.address()])
        for number in range(100):
            node.kad.provider_store.add_provider(number.to_bytes(32, "big"), provider)
        return node.kad.provider_store.size() <= 64


@scenario
async def a_thousand_peers(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(new())
        store = node.host.get_peerstore()
        for _ in range(1001):
            store.add_addrs(ID(b"\x12\x20" + secrets.token_bytes(32)), [node.address()], 3600)
        try:
            node.host.get_private_key()
        except Exception:
            return False
        return len(store.peer_ids()) <= 1001


@scenario
async def gossip_with_a_key_that_is_none(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        await join(victim)
        message = rpc_pb2.Message(data=b"x", topicIDs=["glia/topic"], seqno=b"1", key=b"\xff" * 9)
        message.from_id, message.signature = b"\x12\x20" + bytes(32), b"s"
        await gossip(one, victim, message)
        await trio.sleep(0.2)
        return await echoes(one, victim)


@scenario
async def a_port_that_is_taken(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(new())
        other = await stack.enter_async_context(new())
        address = one.address().decapsulate_code(421)
        return not await other.host.get_network().listen(address)


@scenario
async def a_connection_that_dies_is_no_finish(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        stream = await one.host.new_stream(victim.host.get_id(), [ECHO])
        await victim.muxer(one).secured_conn.close()
        try:
            await stream.read(1)
        except EOFError:
            return False
        except Exception:
            return True
        return False


@scenario
async def a_negotiation_without_an_end(new: NewNode) -> bool:
    async with AsyncExitStack() as stack:
        one, victim = await pair(stack, new)
        stream = await one.host.get_network().new_stream(victim.host.get_id())
        await stream.write(varint.encode(2**40) + bytes(1000))
        with trio.move_on_after(patience_s(victim)):
            try:
                while True:
                    await stream.read(100)
            except Exception:
                return True
        return False


def kad_protocol(node: Node) -> TProtocol:
    return TProtocol("/glia/kad/1.0.0") if node.network is not None else PUBLIC_KAD


async def send_kad(stream: INetStream, message: Message) -> None:
    data = message.SerializeToString()
    await stream.write(varint.encode(len(data)) + data)


async def join(node: Node) -> None:
    """Follow the topic of these scenarios."""
    if node.network is not None:
        node.network.gossip.join("topic", lambda sender, message: None)
        await trio.sleep(0.05)
    else:
        await node.pubsub.subscribe("glia/topic")


async def gossip(node: Node, other: Node, *messages: rpc_pb2.Message) -> None:
    """Send these as they are."""
    stream = await node.host.new_stream(other.host.get_id(), [PROTOCOL_ID_V11])
    data = rpc_pb2.RPC(publish=messages).SerializeToString()
    await stream.write(varint.encode(len(data)) + data)


_TRIES = 5  # some of what breaks the library needs the scheduler's help


async def _ask_bare(name: str, found: list[str]) -> None:
    for _ in range(_TRIES):
        if not await _withstands(name):
            found.append(name)
            return


async def _withstands(name: str) -> bool:
    try:
        with trio.fail_after(90):
            return await SCENARIOS[name](bare_node)
    except Exception:  # the host died, or never answered
        return False


async def _main() -> None:
    found: list[str] = []
    async with trio.open_nursery() as nursery:
        for name in SCENARIOS:
            nursery.start_soon(_ask_bare, name, found)
    print(json.dumps(sorted(found)))


if __name__ == "__main__":
    trio.run(_main)
