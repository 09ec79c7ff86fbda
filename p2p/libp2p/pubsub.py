"""The library's gossip: checked before a task is made of it, and drained at once."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio
from google.protobuf.message import DecodeError
from libp2p.abc import IHost, INetStream
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.validators import signature_validator
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from glia.errors import RemoteProtocolError
from p2p.host import MAX_MESSAGE_BYTES, PeerId
from p2p.libp2p import caps
from p2p.libp2p.metering import crowd_behind
from p2p.libp2p.muting import Muting
from p2p.libp2p.names import peer_text

PROTOCOL = PROTOCOL_ID_V11
PREFIX = "glia/"
_DEGREE, _DEGREE_LOW, _DEGREE_HIGH = 6, 4, 12
_MAX_RPC_BYTES = 64 * 1024
_log = logging.getLogger("gliad.p2p.libp2p")

Take = Callable[[PeerId, bytes], None]


def new_router() -> GossipSub:
    """gossipsub 1.1 with the library's own limits off where they lose honest messages."""
    return GossipSub(
        [PROTOCOL],
        _DEGREE,
        _DEGREE_LOW,
        _DEGREE_HIGH,
        heartbeat_interval=1,
        adaptive_gossip_enabled=False,
        spam_protection_enabled=False,
        eclipse_protection_enabled=False,
    )


class GuardedPubsub(Pubsub):
    """Messages of joined topics alone, signed, small, and few from one peer.

    Attributes:
        takers: by topic, as on the wire.
    """

    def __init__(self, host: IHost, router: GossipSub) -> None:
        self.takers: dict[str, Take] = {}
        self.muting = Muting()
        super().__init__(
            host,
            router,
            strict_signing=True,
            max_subscriptions_per_peer=caps.MAX_TOPICS_PER_PEER,
            max_subscriptions_per_rpc=caps.MAX_TOPICS_PER_PEER,
            max_inbound_rpc_size=_MAX_RPC_BYTES,
        )

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """One message after the other: the library makes a task of each.

        Raises: RemoteProtocolError, and what the stream raises but for its end.
        """
        peer = stream.muxed_conn.peer_id
        name, crowd = peer_text(peer), crowd_behind(stream.muxed_conn)
        while not self.muting.is_muted(name, trio.current_time()):
            try:
                data = await read_varint_prefixed_bytes_limited(stream, _MAX_RPC_BYTES)
            except StreamEOF:
                return
            rpc = _parsed(data)
            for message in rpc.publish:
                is_admitted = self.muting.admits(name, crowd, trio.current_time())
                if is_admitted and self._is_subscribed_to_msg(message):
                    await self.push_msg(peer, message)
            for each in rpc.subscriptions[: caps.MAX_TOPICS_PER_PEER]:
                self.handle_subscription(peer, each)
            if rpc.HasField("control"):
                await self.router.handle_rpc(rpc, peer)
        raise RemoteProtocolError(f"peer {peer} is muted")

    async def stream_handler(self, stream: INetStream) -> None:
        await self.continuously_read_stream(stream)

    def _is_subscribed_to_msg(self, msg: rpc_pb2.Message) -> bool:
        return (
            len(msg.data) <= MAX_MESSAGE_BYTES
            and len(msg.topicIDs) == 1
            and msg.topicIDs[0] in self.takers
        )

    def handle_subscription(self, origin_id: ID, sub_message: rpc_pb2.RPC.SubOpts) -> None:
        topic = sub_message.topicid
        if topic.startswith(PREFIX) and len(topic) <= caps.MAX_TOPIC_BYTES:
            super().handle_subscription(origin_id, sub_message)

    async def push_msg(self, msg_forwarder: ID, msg: rpc_pb2.Message) -> None:
        """Before anything else of the library sees it: the signature."""
        if msg_forwarder != self.my_id:
            if self._is_msg_seen(msg):
                return
            if not _is_signed(msg):
                forwarder = peer_text(msg_forwarder)
                if self.muting.note_bad(forwarder, trio.current_time()):
                    _log.warning("peer %s is muted: it sends what is not signed", forwarder)
                return
        await super().push_msg(msg_forwarder, msg)

    def notify_subscriptions(self, publish_message: rpc_pb2.Message) -> None:
        sender = ID(publish_message.from_id)
        for topic in publish_message.topicIDs:
            take = self.takers.get(topic)
            if take is None or sender == self.my_id:
                continue
            try:
                take(peer_text(sender), publish_message.data)
            except Exception:
                _log.exception("a reader of topic %s failed", topic)


def _parsed(data: bytes) -> rpc_pb2.RPC:
    """Raises: RemoteProtocolError."""
    rpc = rpc_pb2.RPC()
    try:
        rpc.ParseFromString(data)
    except DecodeError as error:
        raise RemoteProtocolError("not a message of gossipsub") from error
    return rpc


def _is_signed(msg: rpc_pb2.Message) -> bool:
    try:
        return signature_validator(msg)
    except Exception as error:  # of a malformed key or sender, whatever it is
        _log.debug("a message's signature is malformed: %r", error)
        return False
