"""Peers that fill a node's directory: `python -m tests.kad_flood ADDRESS NUM_LINKS`, for ever.

Each keeps sending records of 32 links, and opens a new stream where the last one is reset.
"""

from __future__ import annotations

import secrets
import sys
from contextlib import AsyncExitStack, suppress
from itertools import count

import trio
import varint
from libp2p.custom_types import TProtocol
from libp2p.kad_dht.pb.kademlia_pb2 import Message
from libp2p.peer.id import ID
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from glia.graph.ids import ModelId, PrefixKey, ProfileId, WindowId, genesis_window
from glia.graph.link import Claim, LinkKind, sign_link
from glia.graph.neuron import Signer
from p2p.host import Address
from p2p.libp2p import caps
from p2p.libp2p.records import join_values, value_key
from tests.libp2p_nodes import Node, guarded_node

MODEL, PROFILE = ModelId(bytes(32)), ProfileId(bytes(32))
_NUM_VALUES = 32
_NUM_RECORDS = 4  # each made once: to sign them takes longer than to send them


def a_link(key: bytes, signer: Signer, sequence: int) -> bytes:
    """Of a chain that nobody has."""
    base = genesis_window(MODEL, PROFILE)
    tip = WindowId(secrets.token_bytes(32))
    claim = Claim(LinkKind.NEXT_BLOCK, MODEL, PROFILE, base, tip, PrefixKey(key), 0, 16)
    return sign_link(signer, claim, sequence, 1).encoding


def put_message(key: bytes, values: list[bytes]) -> bytes:
    """A PUT_VALUE as it is sent."""
    message = Message(type=Message.MessageType.PUT_VALUE, key=value_key(key))
    message.record.key, message.record.value = value_key(key), join_values(values)
    data = message.SerializeToString()
    return bytes(varint.encode(len(data)) + data)


def _record(signer: Signer) -> bytes:
    key = secrets.token_bytes(32)
    return put_message(key, [a_link(key, signer, number) for number in range(_NUM_VALUES)])


async def _flood(node: Node, address: str) -> None:
    assert node.network is not None
    await node.network.host.connect(Address(address))
    signer = Signer(secrets.token_bytes(32))
    records = [_record(signer) for _ in range(_NUM_RECORDS)]
    victim = node.host.get_network().get_connections()[0].muxed_conn.peer_id
    async with trio.open_nursery() as nursery:
        for _ in range(caps.MAX_KAD_STREAMS_PER_PEER):
            nursery.start_soon(_send, node, victim, records)


async def _send(node: Node, victim: ID, records: list[bytes]) -> None:
    while True:
        with suppress(Exception):
            stream = await node.host.new_stream(victim, [TProtocol(caps.KAD_PROTOCOL)])
            print("floods", flush=True)
            for number in count():
                await stream.write(records[number % _NUM_RECORDS])
                await read_varint_prefixed_bytes_limited(stream, caps.MAX_KAD_MESSAGE_BYTES)
        await trio.sleep(0.005)


async def _main() -> None:
    address, num_links = sys.argv[1], int(sys.argv[2])
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        for _ in range(num_links):
            node = await stack.enter_async_context(guarded_node())
            nursery.start_soon(_flood, node, address)


if __name__ == "__main__":
    trio.run(_main)
