"""The port's directory on the DHT."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio
from libp2p.kad_dht.common import format_time_rfc3339
from libp2p.kad_dht.pb.kademlia_pb2 import Record
from libp2p.kad_dht.provider_store import ProviderStore
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo

from glia.errors import BadRequest, PeerUnreachable, RemoteProtocolError
from p2p.host import MAX_VALUE_BYTES, Found, PeerId
from p2p.libp2p.kad import GuardedKad
from p2p.libp2p.names import dialable, peer_text
from p2p.libp2p.records import join_values, merge_values, split_values, value_key

_KEY_BYTES = 32
_BLAKE3_MULTIHASH = b"\x1e\x20"  # so that a CID finds its providers, whoever looks
_ASK_S = 10.0  # one peer
_MAX_ADDRESSES = 8  # of one provider: each may take the whole time of a dial
_ALONE = "no peer of the directory could be told"

_log = logging.getLogger("gliad.p2p.libp2p")

Learn = Callable[[Found], None]


class LibP2PDirectory:
    """Keeps `p2p.host.Directory`.

    Args:
        start: runs something beside, which may fail.
        learn: is told addresses that were found.
    """

    def __init__(
        self,
        kad: GuardedKad,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        learn: Learn,
    ) -> None:
        self._kad, self._start, self._learn = kad, start, learn

    async def provide(self, key: bytes) -> None:
        name = _provider_key(key)
        store = self._kad.provider_store
        own = PeerInfo(self._kad.local_peer_id, list(self._kad.host.get_addrs()))
        if not await self._each(await self._kad.closest(name), store.send_provider, name):
            raise PeerUnreachable(_ALONE)
        store.add_provider(name, own)

    async def providers(self, key: bytes, most: int) -> list[Found]:
        name = _provider_key(key)
        fresh = ProviderStore(self._kad.host, self._kad.peer_routing)
        known = [*self._kad.provider_store.get_providers(name)]
        known += await fresh.find_providers(name, most)
        found: dict[PeerId, Found] = {}
        for each in known:
            peer = peer_text(each.peer_id)
            if each.peer_id != self._kad.local_peer_id and peer not in found:
                found[peer] = Found(peer, dialable(each.addrs, peer)[:_MAX_ADDRESSES])
        for one in found.values():
            self._learn(one)
        return list(found.values())[:most]

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

        async def tell(peer: ID, name: bytes) -> None:
            if not await store._store_at_peer(peer, name, record, record=kept):
                raise RemoteProtocolError("refused")

        if not await self._each(await self._kad.closest(name), tell, name):
            raise PeerUnreachable(_ALONE)
        store.put_record(name, kept)

    async def get(self, key: bytes) -> list[bytes]:
        name = value_key(_checked(key))
        store = self._kad.value_store
        own = store.get(name)
        found = split_values(own.value) if own is not None else []

        async def ask(peer: ID, name: bytes) -> None:
            value = await store._get_from_peer(peer, name)
            if isinstance(value, bytes):
                self._kad.validator.validate(name.decode(), value)  # type: ignore[union-attr]
                found[:] = merge_values(found, split_values(value))

        await self._each(await self._kad.closest(name), ask, name)
        return found

    async def _each(
        self, peers: list[ID], ask: Callable[[ID, bytes], Awaitable[None]], key: bytes
    ) -> int:
        """Ask all of these at once; how many did not fail."""
        num_left, num_done = len(peers), 0
        is_over = trio.Event()

        async def one(peer: ID) -> None:
            nonlocal num_left, num_done
            try:
                with trio.fail_after(_ASK_S):
                    await ask(peer, key)
                num_done += 1
            except Exception as error:  # a peer can make anything of an answer
                _log.debug("peer %s of the directory fails: %r", peer, error)
            finally:
                num_left -= 1
                if not num_left:
                    is_over.set()

        for peer in peers:
            self._start(lambda peer=peer: one(peer))  # type: ignore[misc]
        if peers:
            await is_over.wait()
        return num_done


def _checked(key: bytes) -> bytes:
    """Raises: BadRequest."""
    if len(key) != _KEY_BYTES:
        raise BadRequest(f"a key has {_KEY_BYTES} bytes, this one {len(key)}")
    return key


def _provider_key(key: bytes) -> bytes:
    return _BLAKE3_MULTIHASH + _checked(key)
