"""What this node keeps of the DHT for others, bounded by peer and in all."""

from __future__ import annotations

import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
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
from p2p.host import MAX_VALUE_BYTES
from p2p.libp2p import caps

NAMESPACE = "glia"
MAX_VALUES = 8  # under one key; the oldest gives way
_MAX_PROVIDERS = 20  # of one key
_LENGTH = struct.Struct(">H")

Validate = Callable[[bytes, bytes], bool]


class GuardedProviders(ProviderStore):
    """At most MAX_PROVIDED_PER_PEER keys of one peer and MAX_PROVIDED in all, oldest out."""

    def __init__(self, host: IHost, peer_routing: Any) -> None:
        super().__init__(host, peer_routing)
        self._order: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._by_peer: dict[str, OrderedDict[bytes, None]] = {}

    def add_provider(self, key: bytes, provider: PeerInfo) -> None:
        """Keep that a peer has a key."""
        peer = str(provider.peer_id)
        self._remove(peer, key)
        if len(self.providers.get(key, ())) >= _MAX_PROVIDERS:
            return
        own = self._by_peer.setdefault(peer, OrderedDict())
        own[key] = self._order[peer, key] = None
        self.providers.setdefault(key, {})[peer] = ProviderRecord(provider, time.time())
        if len(own) > caps.MAX_PROVIDED_PER_PEER:
            self._remove(peer, next(iter(own)))
        if len(self._order) > caps.MAX_PROVIDED:
            self._remove(*next(iter(self._order)))

    def cleanup_expired(self) -> None:
        """Forget what is too old: `_order` is by age."""
        while self._order:
            peer, key = next(iter(self._order))
            if not self.providers[key][peer].is_expired():
                return
            self._remove(peer, key)

    def get_providers(self, key: bytes) -> list[PeerInfo]:
        records = self.providers.get(key, {}).values()
        return [record.provider_info for record in records if not record.is_expired()]

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

    def _remove(self, peer: str, key: bytes) -> None:
        if (peer, key) not in self._order:
            return
        del self._order[peer, key]
        del self._by_peer[peer][key]
        if not self._by_peer[peer]:
            del self._by_peer[peer]
        del self.providers[key][peer]
        if not self.providers[key]:
            del self.providers[key]


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
    """Keeps the values that a key had beside a new one, up to MAX_VALUES."""

    def put_record(self, key: bytes, record: Record) -> None:
        """Keep a record that was validated."""
        old = self.get(key)
        before = split_values(old.value) if old is not None else []
        values = merge_values(before, split_values(record.value))
        merged = Record(key=key, value=join_values(values), timeReceived=record.timeReceived)
        super().put_record(key, merged)


def merge_values(before: Iterable[bytes], new: Sequence[bytes]) -> list[bytes]:
    """The newest MAX_VALUES of both, each once, oldest first."""
    return [*(value for value in before if value not in new), *new][-MAX_VALUES:]
