"""One direction of a stream: what was sent, until it is read."""

from __future__ import annotations

import math
from collections import deque

import trio

from glia.errors import PeerLost
from p2p.testing.road import Road

WINDOW_BYTES = 256 * 1024  # in flight and unread at once, as a stream of yamux begins
_SEGMENT_BYTES = 16 * 1024
_END = b""


class End:
    """Who reads or who writes. It is lost at once where it resets, else when it hears of it."""

    def __init__(self, road: Road) -> None:
        self._road = road  # along which it hears from the other side
        self._is_lost = False
        self._told_s = math.inf
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def lost_s(self) -> float:
        """When it is lost, as far as is known."""
        return -math.inf if self._is_lost else self._road.delivered_s(self._told_s)

    @property
    def is_lost(self) -> bool:
        return self.lost_s <= trio.current_time()

    def lose(self) -> None:
        """This side wants no more of it."""
        self._is_lost = True
        self.wake()

    def tell(self, arrival_s: float) -> None:
        """The other side has lost it; word of that arrives then."""
        self._told_s = min(self._told_s, arrival_s)
        self.wake()

    async def wait(self, until_s: float) -> None:
        """Until something changed, or that time."""
        with trio.move_on_at(min(until_s, self.lost_s)):
            await self._waiting.park()

    def wake(self) -> None:
        """Look again: bytes came, a road was cut or has healed, an end is lost."""
        self._waiting.unpark_all()


class Pipe:
    """Bytes on their way along `road`; leave to send more comes `back`."""

    def __init__(self, road: Road, back: Road) -> None:
        self._road, self._back = road, back
        self.reader, self.writer = End(road), End(back)
        self._segments: deque[tuple[float, bytes]] = deque()
        self._credit_bytes = WINDOW_BYTES
        self._credits: deque[tuple[float, int]] = deque()
        self._last_s = -math.inf
        self._is_finished = False

    async def send(self, data: bytes) -> None:
        """Returns when all of it is in flight. Raises: PeerLost."""
        await trio.lowlevel.checkpoint()
        at = 0
        while at < len(data):
            await self._wait_credit()
            segment = data[at : at + min(_SEGMENT_BYTES, self._credit_bytes)]
            self._credit_bytes -= len(segment)
            self._put(self._road.spoiled(segment), len(segment))
            at += len(segment)

    def finish(self) -> None:
        """No more will be sent; once is enough. Raises: PeerLost."""
        if not self._is_finished:
            self._check_writer()
            self._put(_END, 0)
            self._is_finished = True

    async def receive(self, max_bytes: int) -> bytes:
        """1 to `max_bytes` bytes that have arrived; b"" at the end. Raises: PeerLost."""
        await trio.lowlevel.checkpoint()
        while not self._num_ready():
            if self.reader.is_lost:
                raise PeerLost("the stream was reset")
            await self.reader.wait(self._next_s())
        return self._take(max_bytes)

    def _put(self, segment: bytes, size_bytes: int) -> None:
        arrival_s = self._road.arrival_s(size_bytes, trio.current_time())
        self._last_s = max(self._last_s, arrival_s)
        self._segments.append((self._last_s, segment))
        self.reader.wake()

    def _next_s(self) -> float:
        return self._road.delivered_s(self._segments[0][0]) if self._segments else math.inf

    def _num_ready(self) -> int:
        """Segments that have arrived, unless the reader has lost them."""
        if self.reader.is_lost:
            return 0
        now_s, num = trio.current_time(), 0
        for arrival_s, _ in self._segments:
            if self._road.delivered_s(arrival_s) > now_s:
                break
            num += 1
        return num

    def _take(self, max_bytes: int) -> bytes:
        taken = bytearray()
        for _ in range(self._num_ready()):
            arrival_s, segment = self._segments[0]
            if segment == _END or len(taken) == max_bytes:
                break
            part = segment[: max_bytes - len(taken)]
            taken += part
            self._segments.popleft()
            if len(part) < len(segment):
                self._segments.appendleft((arrival_s, segment[len(part) :]))
        if taken:
            self._credits.append((trio.current_time() + self._back.link.latency_s, len(taken)))
            self.writer.wake()
        return bytes(taken)

    async def _wait_credit(self) -> None:
        while True:
            self._check_writer()
            while self._credits and self._credit_s() <= trio.current_time():
                self._credit_bytes += self._credits.popleft()[1]
            if self._credit_bytes:
                return
            await self.writer.wait(self._credit_s())

    def _credit_s(self) -> float:
        return self._back.delivered_s(self._credits[0][0]) if self._credits else math.inf

    def _check_writer(self) -> None:
        if self.writer.is_lost:
            raise PeerLost("the stream was reset")
        if self._is_finished:
            raise PeerLost("the stream was finished on this side")
