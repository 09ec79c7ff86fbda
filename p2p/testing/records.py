"""The DHT: each record lies at the hosts whose ids are closest to its key.

Routing is taken as perfect: whoever looks finds the closest of all hosts it can reach, two
round trips later. What the hosts then answer is their affair (`Records.drops`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import blake3
import trio

from glia.errors import BadRequest, PeerUnreachable
from p2p.host import MAX_VALUE_BYTES, Address, Found, PeerId

Validate = Callable[[bytes, bytes], bool]
_KEY_BYTES = 32
_REPLICAS = 20
_PROVIDER_LIFE_S = 48 * 3600.0
_VALUE_LIFE_S = 48 * 3600.0
_MAX_PROVIDERS = 20
_MAX_VALUES = 8
_ROUND_TRIPS = 2


def take_all(key: bytes, value: bytes) -> bool:
    """A validator that refuses nothing."""
    return True


class Records:
    """What one host keeps for others.

    Attributes:
        drops: it takes records and answers with nothing, as a censor does.
    """

    def __init__(self, peer: PeerId, validate: Validate) -> None:
        self.drops = False
        self.validate = validate
        self._place = blake3.blake3(peer.encode()).digest()
        self._providers: dict[bytes, dict[PeerId, tuple[Address, float]]] = {}
        self._values: dict[bytes, dict[bytes, float]] = {}

    def distance(self, key: bytes) -> int:
        """Of this host from a key."""
        place = blake3.blake3(key).digest()
        return int.from_bytes(self._place, "big") ^ int.from_bytes(place, "big")

    def add_provider(self, key: bytes, peer: PeerId, address: Address) -> None:
        """The oldest gives way."""
        found = self._providers.setdefault(key, {})
        found.pop(peer, None)
        found[peer] = address, trio.current_time() + _PROVIDER_LIFE_S
        if len(found) > _MAX_PROVIDERS:
            del found[next(iter(found))]

    def providers(self, key: bytes) -> list[tuple[PeerId, Address]]:
        """Those that have not expired."""
        now_s, found = trio.current_time(), self._providers.get(key, {})
        alive = [(peer, address) for peer, (address, until_s) in found.items() if now_s < until_s]
        return [] if self.drops else alive

    def add_value(self, key: bytes, value: bytes) -> None:
        """Kept if it is valid; the oldest gives way."""
        if not self.validate(key, value):
            return
        found = self._values.setdefault(key, {})
        found.pop(value, None)
        found[value] = trio.current_time() + _VALUE_LIFE_S
        if len(found) > _MAX_VALUES:
            del found[next(iter(found))]

    def values(self, key: bytes) -> list[bytes]:
        """Those that have not expired."""
        now_s, found = trio.current_time(), self._values.get(key, {})
        return [] if self.drops else [value for value, until_s in found.items() if now_s < until_s]


@dataclass(frozen=True, slots=True)
class Reached:
    """A host that can be asked, and how long that takes."""

    records: Records
    rtt_s: float


class SimDirectory:
    """One host's view of the DHT.

    Args:
        ask: every host that can be reached now, this one included; none without a connection.
        learn: is told addresses that were found.
    """

    def __init__(
        self,
        peer: PeerId,
        address: Address,
        own: Records,
        ask: Callable[[], Sequence[Reached]],
        learn: Callable[[PeerId, Address], None],
        note: Callable[..., None],
    ) -> None:
        self._peer, self._address, self._own = peer, address, own
        self._ask, self._learn, self._note = ask, learn, note

    async def provide(self, key: bytes) -> None:
        closest = await self._closest(key)
        if not closest:
            raise PeerUnreachable("no peer of the directory is connected")
        self._note("provide", key.hex())
        for records in closest:
            records.add_provider(key, self._peer, self._address)

    async def providers(self, key: bytes, most: int) -> list[Found]:
        found: dict[PeerId, Address] = {}
        for records in await self._closest(key):
            found.update(records.providers(key))
        found.pop(self._peer, None)
        self._note("providers", key.hex(), len(found))
        for peer, address in found.items():
            self._learn(peer, address)
        return [Found(peer, (address,)) for peer, address in found.items()][:most]

    async def put(self, key: bytes, value: bytes) -> None:
        if len(value) > MAX_VALUE_BYTES or not self._own.validate(key, value):
            raise BadRequest("not a record of the directory")
        closest = await self._closest(key)
        if not closest:
            raise PeerUnreachable("no peer of the directory is connected")
        self._note("put", key.hex(), len(value))
        for records in closest:
            records.add_value(key, value)

    async def get(self, key: bytes) -> list[bytes]:
        found: dict[bytes, None] = {}
        for records in await self._closest(key):
            found.update(dict.fromkeys(records.values(key)))
        self._note("get", key.hex(), len(found))
        return [value for value in found if self._own.validate(key, value)]

    async def _closest(self, key: bytes) -> list[Records]:
        if len(key) != _KEY_BYTES:
            raise BadRequest(f"a key has {_KEY_BYTES} bytes, this one {len(key)}")
        reached = sorted(self._ask(), key=lambda one: one.records.distance(key))[:_REPLICAS]
        await trio.sleep(_ROUND_TRIPS * max((one.rtt_s for one in reached), default=0.0))
        return [one.records for one in reached]
