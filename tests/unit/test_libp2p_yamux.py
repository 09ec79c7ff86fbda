"""Guards of single streams, on virtual time: what the library's own stream does, and ours."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from libp2p.io.exceptions import IncompleteReadError
from libp2p.stream_muxer.exceptions import MuxedStreamError
from libp2p.stream_muxer.yamux.yamux import DEFAULT_WINDOW_SIZE
from trio.testing import MockClock

from glia.errors import NetworkError
from p2p.libp2p import caps, guards
from p2p.libp2p.yamux import GuardedStream, GuardedYamux

LIBRARY_STREAM = GuardedStream.__mro__[1]


class Wire:
    """A secured connection: what is written is kept, what is read is given.

    Attributes:
        stalls: a write waits until it is cancelled, in the middle.
    """

    is_initiator = True

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.stalls = False
        self.is_closed = False

    async def write(self, data: bytes) -> None:
        if self.stalls:
            self.written.append(data[: len(data) // 2])
            await trio.sleep_forever()
        await trio.sleep(0.01)
        self.written.append(data)

    async def close(self) -> None:
        self.is_closed = True


def new_muxer(wire: Wire) -> GuardedYamux:
    return GuardedYamux(wire, None, 8 * 1024 * 1024)  # type: ignore[arg-type]


async def opened(muxer: GuardedYamux, made: type[Any]) -> Any:
    """A stream of either class, as the muxer opens one."""
    stream = made(1, muxer, True)
    muxer.streams[1], muxer.stream_buffers[1] = stream, bytearray()
    muxer.stream_events[1] = trio.Event()
    return stream


@pytest.mark.parametrize(("made", "num_kept"), [(LIBRARY_STREAM, 1), (GuardedStream, 0)])
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_stream_that_was_reset_takes_no_place(
    made: type[Any], num_kept: int, is_cancelled: bool
) -> None:
    """Not for what came and was not read, nor where the peer could not be told."""

    async def main() -> None:
        muxer = new_muxer(Wire())
        stream = await opened(muxer, made)
        muxer.stream_buffers[1] += b"unread"
        with trio.CancelScope() as scope:
            if is_cancelled:
                scope.cancel()
            await stream.reset()
        kept = (muxer.streams, muxer.stream_buffers, muxer.stream_events)
        assert [len(each) for each in kept] == [num_kept] * 3

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize(("made", "holds"), [(LIBRARY_STREAM, False), (GuardedStream, True)])
def test_a_writer_waits_for_a_reader_that_pauses(made: type[Any], holds: bool) -> None:
    async def main() -> None:
        muxer = new_muxer(Wire())
        stream = await opened(muxer, made)

        async def read_late() -> None:
            await trio.sleep(20)
            stream.send_window += DEFAULT_WINDOW_SIZE

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_late)
            data = bytes(DEFAULT_WINDOW_SIZE + 1)
            if holds:
                await stream.write(data)
            else:
                with pytest.raises(MuxedStreamError):
                    await stream.write(data)

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_frame_is_written_whole_though_its_writer_is_cancelled() -> None:
    async def main() -> None:
        wire = Wire()
        muxer = new_muxer(wire)
        with trio.move_on_after(0.005) as scope:
            await muxer._write_frame(b"x" * 100)
        assert scope.cancelled_caught or wire.written
        assert wire.written == [b"x" * 100]
        assert not wire.is_closed

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_peer_that_takes_no_frame_is_given_up() -> None:
    async def main() -> None:
        wire = Wire()
        wire.stalls = True
        muxer = new_muxer(wire)
        with trio.fail_after(60), pytest.raises(MuxedStreamError):
            await muxer._write_frame(b"x" * 100)
        assert wire.is_closed
        assert muxer.is_closed

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_closing_does_not_wait_for_a_writer_that_stalls() -> None:
    async def main() -> None:
        wire = Wire()
        wire.stalls = True
        muxer = new_muxer(wire)

        async def write() -> None:
            with pytest.raises(MuxedStreamError):
                await muxer._write_frame(b"x" * 100)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            start_s = trio.current_time()
            await muxer.close()
            assert trio.current_time() - start_s <= 1.0
        assert muxer.is_closed

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_unread_bytes_of_all_streams_are_bounded() -> None:
    async def main() -> None:
        muxer = new_muxer(Wire())
        stream = await opened(muxer, GuardedStream)
        muxer.stream_buffers[1] += bytes(8 * 1024 * 1024)
        stream.recv_window = 0
        assert not muxer.event_shutting_down.is_set()
        muxer.stream_buffers[1] += b"x"
        stream.recv_window = 0
        assert muxer.event_shutting_down.is_set()

    trio.run(main)


def test_a_little_beyond_a_window_is_borne() -> None:
    async def main() -> None:
        muxer = new_muxer(Wire())
        stream = await opened(muxer, GuardedStream)
        stream.recv_window = -caps.MAX_EXCESS_BYTES
        assert not muxer.event_shutting_down.is_set()
        stream.recv_window = -1
        assert muxer.event_shutting_down.is_set()

    trio.run(main)


def test_credit_is_given_in_steps_and_up_to_the_window() -> None:
    async def main() -> None:
        wire = Wire()
        muxer = new_muxer(wire)
        stream = await opened(muxer, GuardedStream)
        num_granted = DEFAULT_WINDOW_SIZE
        for _ in range(100):
            muxer.stream_buffers[1] += bytes(50_000)
            stream.recv_window -= 50_000
            muxer.stream_events[1].set()
            assert len(await stream.read(65_536)) == 50_000
            num_unused = stream.recv_window
            assert 0 <= num_unused <= caps.MAX_WINDOW_BYTES
        num_granted += sum(int.from_bytes(each[8:12], "big") for each in wire.written)
        assert num_granted - 100 * 50_000 == stream.recv_window
        assert len(wire.written) <= 12

    trio.run(main)


def test_reading_goes_on_after_a_hundred_pieces() -> None:
    class Trickle:
        """Gives a byte at a time, and so many."""

        def __init__(self, num: int) -> None:
            self.num = num

        async def read(self, n: int | None = None) -> bytes:
            self.num -= 1
            return b"x" if self.num >= 0 else b""

    async def main() -> None:
        assert await guards.read_exactly(Trickle(500), 400) == b"x" * 400  # type: ignore[arg-type]
        with pytest.raises(IncompleteReadError) as caught:
            await guards.read_exactly(Trickle(300), 400)  # type: ignore[arg-type]
        assert (caught.value.expected_bytes, caught.value.received_bytes) == (400, 300)

    trio.run(main)


def test_another_version_of_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libp2p.__version__", "0.8.2")
    with pytest.raises(NetworkError) as caught:
        guards.apply("gliad/test")
    assert "0.8.2" in caught.value.message
    assert caught.value.hint is not None
