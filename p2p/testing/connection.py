"""What two hosts have while they are connected."""

from __future__ import annotations

from itertools import count
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import trio

from p2p.host import Address, Connection, Direction, PeerId
from p2p.testing.road import Road
from p2p.testing.stream import SimStream

H = TypeVar("H")
_AGAIN_S = 0.1


class SimConnection(Generic[H]):
    """One host's side: the host at the other end, the streams, the last ping."""

    def __init__(
        self,
        other: H,
        peer: PeerId,
        address: Address,
        direction: Direction,
        there: Road,
        back: Road,
    ) -> None:
        self.other = other
        self.there, self.back = there, back
        self.rtt_s: float | None = None
        self.lost = trio.Event()
        self._ip = address.split("/")[2]
        self._listed = (peer, address, direction, trio.current_time())
        self._numbers = count()
        self._streams: WeakValueDictionary[int, SimStream] = WeakValueDictionary()

    def listed(self) -> Connection:
        """As the port lists it."""
        return Connection(*self._listed, agent="sim", rtt_s=self.rtt_s, remote_ip=self._ip)

    def keep(self, stream: SimStream) -> None:
        """A stream that ends with the connection; it need not be given back."""
        self._streams[next(self._numbers)] = stream

    def wake(self) -> None:
        """A road has healed."""
        for stream in list(self._streams.values()):
            stream.wake()

    def lose(self, *, is_told: bool) -> None:
        """Every stream of it ends, and the other side hears of that or does not."""
        self.lost.set()
        for stream in list(self._streams.values()):
            stream.lose(is_told=is_told)

    async def round_trip(self, within_s: float) -> bool:
        """Say something and have an answer. Returns: whether one came in time."""
        now_s = trio.current_time()
        with trio.move_on_at(now_s + within_s):
            heard_s = self.there.arrival_s(0, now_s) + self.back.link.latency_s
            await trio.sleep_until(heard_s)
            while self.there.is_cut or self.back.is_cut:
                await trio.sleep(_AGAIN_S)
            return not self.lost.is_set()
        return False
