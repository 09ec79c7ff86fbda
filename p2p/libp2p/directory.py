"""The port's directory on the DHT."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from libp2p.kad_dht.common import format_time_rfc3339
from libp2p.kad_dht.pb.kademlia_pb2 import Record
from libp2p.peer.peerinfo import PeerInfo

from glia.errors import BadRequest, PeerUnreachable, RemoteProtocolError
from p2p.host import MAX_VALUE_BYTES, Found, PeerId
from p2p.libp2p.kad import GuardedKad, distance
from p2p.libp2p.names import dialable, peer_object, peer_text
from p2p.libp2p.records import join_values, split_values, value_key
from p2p.looking import ENOUGH, LOOK_UP_S, READ_S, Start, ask_all
from p2p.routing import Routing
from p2p.values import kept_values

_KEY_BYTES = 32
_BLAKE3_MULTIHASH = b"\x1e\x20"  # so that a CID finds its providers, whoever looks
_ASK_S = 10.0  # one peer
_MAX_ADDRESSES = 8  # of one provider: each may take the whole time of a dial
_ALONE = "no peer of the directory could be told"

Learn = Callable[[Found], None]


class LibP2PDirectory:
    """Keeps `p2p.host.Directory`.

    Args:
        start: runs something beside, which may fail.
        learn: is told addresses that were found.
    """

    def __init__(self, kad: GuardedKad, start: Start, learn: Learn) -> None:
        self._kad, self._start, self._learn = kad, start, learn
        contacts = kad.routing_table.contacts
        self._routing = Routing(contacts, kad.neighbours, kad.closer, distance, start)
        self._own = kad.local_peer_id.to_bytes()
        self._has_joined = False
        kad.refresh = partial(self._routing.join, self._own)

    @property
    def rendezvous(self) -> Callable[[], Sequence[PeerId]]:
        return self._routing.rendezvous

    @rendezvous.setter
    def rendezvous(self, peers: Callable[[], Sequence[PeerId]]) -> None:
        self._routing.rendezvous = peers

    @property
    def is_proven(self) -> Callable[[PeerId], bool]:
        return self._kad.provider_store.is_proven

    @is_proven.setter
    def is_proven(self, is_proven: Callable[[PeerId], bool]) -> None:
        self._kad.provider_store.is_proven = is_proven

    @property
    def num_crowded(self) -> int:
        return self._routing.num_crowded

    async def tend(self) -> None:
        """See which peers of the directory are there, for ever."""
        await self._routing.tend(self._own)

    async def provide(self, key: bytes) -> None:
        name = _provider_key(key)
        store = self._kad.provider_store
        own = PeerInfo(self._kad.local_peer_id, list(self._kad.host.get_addrs()))

        async def tell(peer: PeerId) -> None:
            await store.send_provider(peer_object(peer), name)

        if not await self._ask_keepers(name, tell):
            raise PeerUnreachable(_ALONE)
        store.add_provider(name, own)

    async def providers(self, key: bytes, most: int) -> list[Found]:
        name = _provider_key(key)
        store = self._kad.provider_store
        known = [*store.get_providers(name)]

        async def ask(peer: PeerId) -> None:
            providers, _ = await store._get_providers_from_peer_with_closers(
                peer_object(peer), name
            )
            known.extend(providers)

        await self._ask_keepers(name, ask, ENOUGH)
        found: dict[PeerId, Found] = {}
        for each in known:
            peer = peer_text(each.peer_id)
            if each.peer_id != self._kad.local_peer_id and peer not in found:
                found[peer] = Found(peer, dialable(each.addrs, peer)[:_MAX_ADDRESSES])
        shown = list(found.values())
        if len(shown) > most:
            shown = secrets.SystemRandom().sample(shown, most)
        for one in shown:
            self._learn(one)
        return shown

    async def put(self, key: bytes, value: bytes) -> None:
        name, record = value_key(_checked(key)), join_values([value[:MAX_VALUE_BYTES]])
        try:
            if len(value) > MAX_VALUE_BYTES:
                raise ValueError("too large")
            self._kad.validator.validate(name.decode(), record)  # type: ignore[union-attr]
        except ValueError as error:
            raise BadRequest(f"not a record of the directory: {error}") from error
        kept = Record(key=name, value=record, timeReceived=format_time_rfc3339())
        store = self._kad.value_store

        async def tell(peer: PeerId) -> None:
            if not await store._store_at_peer(peer_object(peer), name, record, record=kept):
                raise RemoteProtocolError("refused")

        if not await self._ask_keepers(name, tell):
            raise PeerUnreachable(_ALONE)
        store.put_record(name, kept)

    async def get(self, key: bytes) -> list[bytes]:
        name = value_key(_checked(key))
        store = self._kad.value_store
        own = store.get(name)
        found = split_values(own.value) if own is not None else []

        async def ask(peer: PeerId) -> None:
            value = await store._get_from_peer(peer_object(peer), name)
            if isinstance(value, bytes):
                self._kad.validator.validate(name.decode(), value)  # type: ignore[union-attr]
                new = split_values(value)
                found[:] = kept_values(self._kad.draw, name, [*found, *new])

        await self._ask_keepers(name, ask, ENOUGH)
        return found

    async def _ask_keepers(
        self, name: bytes, ask: Callable[[PeerId], Awaitable[None]], enough: float = 1.0
    ) -> int:
        """How many of those that keep a key did not fail."""
        if not self._has_joined:
            self._has_joined = True
            self._start(partial(self._routing.join, self._own))
        limit_s = LOOK_UP_S if enough == 1.0 else READ_S
        keepers = await self._routing.keepers(name, limit_s)
        return await ask_all(keepers, ask, self._start, _ASK_S, enough)


def _checked(key: bytes) -> bytes:
    """Raises: BadRequest."""
    if len(key) != _KEY_BYTES:
        raise BadRequest(f"a key has {_KEY_BYTES} bytes, this one {len(key)}")
    return key


def _provider_key(key: bytes) -> bytes:
    return _BLAKE3_MULTIHASH + _checked(key)
