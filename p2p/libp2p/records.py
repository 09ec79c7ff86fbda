"""What this node keeps of the DHT for others, bounded by peer and in all."""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import varint
from libp2p.abc import IHost
from libp2p.kad_dht.pb.kademlia_pb2 import Message, Record
from libp2p.kad_dht.provider_store import ProviderRecord, ProviderStore
from libp2p.kad_dht.value_store import ValueStore
from libp2p.network.stream.exceptions import StreamEOF
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from libp2p.peer.peerstore import env_to_send_in_RPC
from libp2p.records.validator import Validator
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from glia.errors import RemoteProtocolError
from p2p.claims import Claims, Draw
from p2p.host import MAX_VALUE_BYTES, PeerId
from p2p.libp2p import caps
from p2p.libp2p.names import peer_text
from p2p.values import MAX_VALUES, KeptValues

NAMESPACE = "glia"
_MAX_SHOWN = 32  # providers in one answer, others each time: so that they fit a message
_MAX_ADDRESSES = 8
_MAX_ADDRESS_BYTES = 128
_LENGTH = struct.Struct(">H")

Validate = Callable[[bytes, bytes], bool]


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose message is worked on. Attributes: crowd: as p2p/crowds.py has it."""

    peer: PeerId
    crowd: str = ""


SENDER = ContextVar[Sender | None]("SENDER", default=None)  # the library does not pass it on


class GuardedProviders(ProviderStore):
    """Bounded by peer, by key and in all (p2p/claims.py).

    Attributes:
        is_proven: see p2p.host.Directory.
    """

    def __init__(self, host: IHost, peer_routing: Any, draw: Draw) -> None:
        super().__init__(host, peer_routing)
        self.is_proven: Callable[[PeerId], bool] = lambda peer: False
        self._claims = Claims[ProviderRecord](draw, lambda peer: self.is_proven(peer))

    def add_provider(self, key: bytes, provider: PeerInfo) -> None:
        """Keep that a peer has a key."""
        short = [each for each in provider.addrs if len(each.to_bytes()) <= _MAX_ADDRESS_BYTES]
        kept = PeerInfo(provider.peer_id, short[:_MAX_ADDRESSES])
        sender = SENDER.get()
        crowd = sender.crowd if sender else ""
        self._claims.put(key, peer_text(provider.peer_id), ProviderRecord(kept), crowd)

    def cleanup_expired(self) -> None:
        """Forget what is too old."""
        while (oldest := self._claims.oldest()) and oldest[2].is_expired():
            self._claims.remove(*oldest[:2])

    def get_providers(self, key: bytes) -> list[PeerInfo]:
        alive = [record for record in self._claims.of(key).values() if not record.is_expired()]
        shown = secrets.SystemRandom().sample(alive, min(len(alive), _MAX_SHOWN))
        return [record.provider_info for record in shown]

    def size(self) -> int:
        return len(self._claims)

    async def send_provider(self, peer: ID, key: bytes) -> None:
        """Tell a peer that this node has a key; the library does not wait for its answer.

        Raises: what the stream raises; RemoteProtocolError where the peer refuses.
        """
        stream = await self.host.new_stream(peer, [caps.KAD_PROTOCOL])  # type: ignore[list-item]
        try:
            data = self._own_record(key).SerializeToString()
            await stream.write(varint.encode(len(data)) + data)
            try:
                await read_varint_prefixed_bytes_limited(stream, caps.MAX_KAD_MESSAGE_BYTES)
            except StreamEOF:
                return  # other implementations take it and say nothing
        finally:
            await stream.reset()

    def _own_record(self, key: bytes) -> Message:
        envelope, _ = env_to_send_in_RPC(self.host)
        message = Message(type=Message.MessageType.ADD_PROVIDER, key=key, senderRecord=envelope)
        provider = message.providerPeers.add()
        provider.id = self.local_peer_id.to_bytes()
        provider.addrs.extend(address.to_bytes() for address in self.host.get_addrs())
        provider.signedRecord = envelope
        return message


def join_values(values: Sequence[bytes]) -> bytes:
    """Values of one key as one record of the DHT: u16 length and bytes, each."""
    return b"".join(_LENGTH.pack(len(value)) + value for value in values)


def split_values(data: bytes) -> list[bytes]:
    """The opposite. Raises: RemoteProtocolError."""
    values: list[bytes] = []
    at = 0
    while at < len(data) and len(values) < MAX_VALUES:
        size = int.from_bytes(data[at : at + _LENGTH.size], "big")
        at += _LENGTH.size
        if not 0 < size <= MAX_VALUE_BYTES or at + size > len(data):
            raise RemoteProtocolError("a record of the directory with a wrong length")
        values.append(data[at : at + size])
        at += size
    if at != len(data) or not values or len(set(values)) != len(values):
        raise RemoteProtocolError("a record of the directory that is not one")
    return values


def value_key(key: bytes) -> bytes:
    """A key as the DHT's records name it."""
    return f"/{NAMESPACE}/{key.hex()}".encode()


class RecordValidator(Validator):
    """Takes records all of whose values are valid."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate

    def validate(self, key: str, value: bytes) -> None:
        """Raises: ValueError."""
        name = bytes.fromhex(key.removeprefix(f"/{NAMESPACE}/"))
        if value_key(name).decode() != key:
            raise ValueError("another spelling of a key")
        try:
            values = split_values(value)
        except RemoteProtocolError as error:
            raise ValueError(error.message) from error
        if not all(self._validate(name, each) for each in values):
            raise ValueError("a value that is not valid")

    def select(self, key: str, values: list[bytes]) -> int:
        """The last: `GuardedValues` keeps what there was beside it."""
        return len(values) - 1


class GuardedValues(ValueStore):
    """Bounded by peer, by key and in all (p2p/values.py)."""

    def __init__(
        self, host: IHost, local_peer_id: ID, draw: Draw, is_proven: Callable[[PeerId], bool]
    ) -> None:
        super().__init__(host, local_peer_id)
        self._kept = KeptValues(draw, is_proven)

    def put_record(self, key: bytes, record: Record) -> None:
        """Keep a record that was validated, of whoever sends it."""
        sender = SENDER.get() or Sender(peer_text(self.local_peer_id))
        values = split_values(record.value)
        self._kept.put(key, sender.peer, values, time.time(), sender.crowd)

    def get(self, key: bytes) -> Record | None:
        values = self._kept.of(key, time.time())
        return Record(key=key, value=join_values(values)) if values else None

    def remove(self, key: bytes) -> bool:
        self._kept.remove(key)
        return True

    def cleanup_expired(self) -> int:
        return self._kept.expire(time.time())

    def size(self) -> int:
        """How many keys of how many peers."""
        return len(self._kept)
