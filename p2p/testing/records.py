"""The DHT: each record lies at the hosts whose ids are closest to its key.

A look-up goes from host to host, as Kademlia's does and with the same decisions as on libp2p
(p2p/routing.py). Modelled: a message to a host and its answer take a round trip and no
connection, and fail where the road is cut or nobody is there, after DEAF_S. What a host
answers is its affair (`Records.drops`, `Records.names`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

import blake3
import trio

from glia.errors import BadRequest, PeerUnreachable
from p2p.claims import Claims, Draw
from p2p.contacts import Contacts
from p2p.host import MAX_VALUE_BYTES, Address, Found, PeerId
from p2p.looking import ASK_S, ENOUGH, READ_S, Start, ask_all
from p2p.routing import Routing
from p2p.testing.kad import distance, place_of, target_of
from p2p.values import KeptValues

Validate = Callable[[bytes, bytes], bool]
DEAF_S = 5.0
_KEY_BYTES = 32
_PROVIDER_LIFE_S = 48 * 3600.0


def take_all(key: bytes, value: bytes) -> bool:
    """A validator that refuses nothing."""
    return True


class Records:
    """What one host keeps for others, and whom it knows.

    Attributes:
        connected: peers that are connected.
        drops: it takes records and answers with nothing, as a censor does.
        names: whom it says are the closest to any key, instead of those that are.
    """

    def __init__(self, peer: PeerId, validate: Validate) -> None:
        self.drops = False
        self.names: Sequence[PeerId] = ()
        self.validate = validate
        self.is_proven: Callable[[PeerId], bool] = lambda peer: False
        self.contacts = Contacts(peer, place_of)
        self.connected: Callable[[], Collection[PeerId]] = tuple
        draw = Draw(blake3.blake3(peer.encode()).digest())
        self._providers = Claims[tuple[Address, float]](draw, lambda one: self.is_proven(one))
        self._values = KeptValues(draw, lambda one: self.is_proven(one))

    def closest(self, key: bytes, asker: PeerId) -> Sequence[PeerId]:
        """Whom it names."""
        self.contacts.asked(asker, trio.current_time())
        found = self.names or self.contacts.closest(target_of(key), self.connected())
        return [peer for peer in found if peer != asker]

    def add_provider(self, key: bytes, peer: PeerId, address: Address) -> None:
        self._providers.put(key, peer, (address, trio.current_time() + _PROVIDER_LIFE_S))

    def providers(self, key: bytes) -> list[tuple[PeerId, Address]]:
        """Those that have not expired."""
        now_s, found = trio.current_time(), self._providers.of(key)
        alive = [(peer, address) for peer, (address, until_s) in found.items() if now_s < until_s]
        return [] if self.drops else alive

    def add_value(self, key: bytes, peer: PeerId, value: bytes) -> None:
        """What a peer sent, kept if it is valid, and there is a place for it."""
        if self.validate(key, value):
            self._values.put(key, peer, [value], trio.current_time())

    def values(self, key: bytes) -> list[bytes]:
        """Those that have not expired."""
        return [] if self.drops else self._values.of(key, trio.current_time())


class SimDirectory:
    """One host's view of the DHT.

    Args:
        reach: a round trip to a peer: what it keeps. Raises: PeerUnreachable.
        learn: is told addresses that were found.
        start: runs something beside.
    """

    def __init__(
        self,
        peer: PeerId,
        address: Address,
        own: Records,
        reach: Callable[[PeerId], Awaitable[Records]],
        learn: Callable[[PeerId, Address], None],
        note: Callable[..., None],
        start: Start,
    ) -> None:
        self._peer, self._address, self._own = peer, address, own
        self._reach, self._learn, self._note, self._start = reach, learn, note, start
        self.routing = Routing(own.contacts, self._neighbours, self._closer, distance, start)
        self._scope, self._is_tended = trio.CancelScope(), False

    @property
    def rendezvous(self) -> Callable[[], Sequence[PeerId]]:
        return self.routing.rendezvous

    @rendezvous.setter
    def rendezvous(self, peers: Callable[[], Sequence[PeerId]]) -> None:
        self.routing.rendezvous = peers

    @property
    def is_proven(self) -> Callable[[PeerId], bool]:
        return self._own.is_proven

    @is_proven.setter
    def is_proven(self, is_proven: Callable[[PeerId], bool]) -> None:
        self._own.is_proven = is_proven

    @property
    def num_crowded(self) -> int:
        return self.routing.num_crowded

    def met(self, peer: PeerId) -> None:
        """A peer that is connected now; the first one is asked who is near."""
        if not self._is_tended:
            self._is_tended = True
            self._start(self._live)

    def end(self) -> None:
        """The host is gone."""
        self._scope.cancel()

    async def _live(self) -> None:
        with self._scope:
            await self.routing.closest(self._peer.encode())
            await self.routing.tend(self._peer.encode())

    async def join(self) -> None:
        """Know others, and be known by them, as nodes do now and then."""
        await self.routing.join(self._peer.encode())

    async def provide(self, key: bytes) -> None:
        async def tell(peer: PeerId) -> None:
            (await self._reach(peer)).add_provider(key, self._peer, self._address)

        await self._tell(key, tell)
        self._own.add_provider(key, self._peer, self._address)
        self._note("provide", key.hex())

    async def providers(self, key: bytes, most: int) -> list[Found]:
        found = dict(self._own.providers(_checked(key)))

        async def ask(peer: PeerId) -> None:
            found.update((await self._reach(peer)).providers(key))

        await self._ask_all(await self.routing.keepers(key, READ_S), ask, ENOUGH)
        found.pop(self._peer, None)
        self._note("providers", key.hex(), len(found))
        for peer, address in found.items():
            self._learn(peer, address)
        return [Found(peer, (address,)) for peer, address in found.items()][:most]

    async def put(self, key: bytes, value: bytes) -> None:
        if len(value) > MAX_VALUE_BYTES or not self._own.validate(key, value):
            raise BadRequest("not a record of the directory")

        async def tell(peer: PeerId) -> None:
            (await self._reach(peer)).add_value(key, self._peer, value)

        await self._tell(key, tell)
        self._own.add_value(key, self._peer, value)
        self._note("put", key.hex(), len(value))

    async def get(self, key: bytes) -> list[bytes]:
        found = dict.fromkeys(self._own.values(_checked(key)))

        async def ask(peer: PeerId) -> None:
            found.update(dict.fromkeys((await self._reach(peer)).values(key)))

        await self._ask_all(await self.routing.keepers(key, READ_S), ask, ENOUGH)
        self._note("get", key.hex(), len(found))
        return [value for value in found if self._own.validate(key, value)]

    async def _tell(self, key: bytes, tell: Callable[[PeerId], Awaitable[None]]) -> None:
        if not await self._ask_all(await self.routing.keepers(_checked(key)), tell):
            raise PeerUnreachable("no peer of the directory could be told")

    async def _ask_all(
        self, peers: Sequence[PeerId], ask: Callable[[PeerId], Awaitable[None]], enough: float = 1.0
    ) -> int:
        return await ask_all(peers, ask, self._start, ASK_S, enough)

    def _neighbours(self, key: bytes) -> Sequence[PeerId]:
        return self._own.contacts.closest(target_of(key), self._own.connected())

    async def _closer(self, peer: PeerId, key: bytes) -> Sequence[PeerId]:
        return (await self._reach(peer)).closest(key, self._peer)


def _checked(key: bytes) -> bytes:
    """Raises: BadRequest."""
    if len(key) != _KEY_BYTES:
        raise BadRequest(f"a key has {_KEY_BYTES} bytes, this one {len(key)}")
    return key
