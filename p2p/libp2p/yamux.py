"""yamux, so that neither a cancelled caller nor a peer without manners breaks a connection."""

from __future__ import annotations

import struct
from contextlib import suppress

import trio
from libp2p.abc import IMuxedConn, ISecureConn
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IncompleteReadError, IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedStreamEOF, MuxedStreamError, MuxedStreamReset
from libp2p.stream_muxer.muxer_multistream import MuxerMultistream
from libp2p.stream_muxer.yamux import yamux as library

from p2p.libp2p.caps import MAX_EXCESS_BYTES, MAX_STREAMS, MAX_WINDOW_BYTES

_FRAME_BYTES = 32 * 1024  # with its header it fits one noise message
_WRITE_BOUND_S = 30.0  # to write one frame; then the peer is gone
_CLOSE_BOUND_S = 1.0
_CLEANUP_BOUND_S = 5.0
_WRITE_ERRORS = (IOException, RawConnError, MuxedStreamError, OSError)


class GuardedStream(library.YamuxStream):
    """A stream whose windows are kept, and whose end is not taken for the connection's."""

    conn: GuardedYamux

    def __init__(self, stream_id: int, conn: library.Yamux, is_initiator: bool) -> None:
        self._credit = trio.Event()
        self._inbox: bytearray | None = None
        self.is_finished = False  # the peer said that it sends no more
        self._send_window = self._recv_window = library.DEFAULT_WINDOW_SIZE
        self._is_closed = self._is_recv_closed = False
        super().__init__(stream_id, conn, is_initiator)
        self.conn.note_opened()

    @property
    def send_window(self) -> int:
        return self._send_window

    @send_window.setter
    def send_window(self, value: int) -> None:
        self._send_window = value
        self._wake()

    @property
    def closed(self) -> bool:
        return self._is_closed

    @closed.setter
    def closed(self, value: bool) -> None:
        self._is_closed = value
        self._wake()

    @property
    def recv_closed(self) -> bool:
        return self._is_recv_closed

    @recv_closed.setter
    def recv_closed(self, value: bool) -> None:
        self._is_recv_closed = value
        if value and not self.conn.event_shutting_down.is_set():
            self.is_finished = True

    @property
    def recv_window(self) -> int:
        return self._recv_window

    @recv_window.setter
    def recv_window(self, value: int) -> None:
        """The library only logs a violation: it sets a negative window, and then 0."""
        self._recv_window = value
        self.conn.note_received(max(0, -value))

    def _wake(self) -> None:
        self._credit.set()
        self._credit = trio.Event()

    async def read(self, n: int | None = -1) -> bytes:
        """Up to `n` bytes. Raises: MuxedStreamEOF, MuxedStreamReset."""
        most = n if n is not None and n > 0 else library.MAX_MESSAGE_SIZE
        inbox = await self._filled()
        data = bytes(inbox[:most])
        del inbox[:most]
        await self._give_credit(inbox)
        return data

    async def _filled(self) -> bytearray:
        """The buffer of what has come, once something has."""
        await trio.lowlevel.checkpoint()  # a flood that is read message by message is no excuse
        if self._inbox is None:
            self._inbox = self.conn.stream_buffers.get(self.stream_id)
        while not self._inbox:
            if self.reset_received and not self.is_finished:
                raise MuxedStreamReset("the stream was reset")
            if self.is_finished:
                raise MuxedStreamEOF("the peer sends no more")
            arrived = self.conn.stream_events.get(self.stream_id)
            if arrived is None or self._inbox is None:
                raise MuxedStreamReset("the connection ended")
            await arrived.wait()
            if self.conn.stream_events.get(self.stream_id) is arrived:
                self.conn.stream_events[self.stream_id] = trio.Event()
        return self._inbox

    async def _give_credit(self, inbox: bytearray) -> None:
        """Let the peer send more, in steps of half a window."""
        grant = MAX_WINDOW_BYTES - self._recv_window - len(inbox)
        if grant < MAX_WINDOW_BYTES // 2 or self._is_recv_closed:
            return
        self._recv_window += grant
        with suppress(*_WRITE_ERRORS):
            await self.send_window_update(grant)

    async def write(self, data: bytes) -> None:
        """Waits for the peer's window as long as it takes. Raises: MuxedStreamError."""
        rest = memoryview(data)
        while rest:
            size = min(await self._may_send(), _FRAME_BYTES, len(rest))
            self._send_window -= size
            header = struct.pack(
                library.YAMUX_HEADER_FORMAT, 0, library.TYPE_DATA, 0, self.stream_id, size
            )
            await self.conn._write_frame(header + bytes(rest[:size]))
            rest = rest[size:]

    async def reset(self) -> None:
        """What nobody has read goes too: for its sake the library keeps the stream for a minute."""
        try:
            await super().reset()
        finally:
            with trio.CancelScope(shield=True):
                await self.conn.forget(self)

    async def _may_send(self) -> int:
        """The window, once there is one."""
        while not self.send_closed and not self._is_closed:
            if self._send_window > 0:
                return self._send_window
            await self._credit.wait()
        raise MuxedStreamError("the stream is closed for sending")


class GuardedYamux(library.Yamux):
    """A connection that outlives cancelled callers, and is dropped where its peer floods it.

    Args:
        max_unread_bytes: of all its streams together.
    """

    def __init__(self, conn: ISecureConn, peer: ID, max_unread_bytes: int) -> None:
        super().__init__(conn, peer, is_initiator=conn.is_initiator)
        self._max_unread_bytes = max_unread_bytes
        self._num_excess_bytes = 0

    def note_received(self, num_excess_bytes: int) -> None:
        """Drop the connection where more is unread, or beyond its windows, than may be."""
        self._num_excess_bytes += num_excess_bytes
        num_unread = sum(len(buffer) for buffer in self.stream_buffers.values())
        if self._num_excess_bytes > MAX_EXCESS_BYTES or num_unread > self._max_unread_bytes:
            self.event_shutting_down.set()

    def note_opened(self) -> None:
        """Drop the connection where too many streams are open."""
        if len(self.streams) >= MAX_STREAMS:
            self.event_shutting_down.set()

    async def start(self) -> None:
        """However its reader ends, nobody waits for it, or takes it for alive."""
        try:
            await super().start()
        finally:
            await self._cleanup_on_error()
            self.event_started.set()

    async def handle_incoming(self) -> None:
        await super().handle_incoming()
        await self._cleanup_on_error()  # a flag alone ends the library's loop, and cleans nothing

    async def _read_data_body(self, length: int) -> bytes:
        try:
            return await super()._read_data_body(length)
        except IncompleteReadError:
            self.event_shutting_down.set()  # or a stream's end would be taken for its finish
            raise

    async def _write_frame(self, data: bytes) -> None:
        """A frame is written whole or the connection is given up.

        Half a frame, after a cancelled write, would put both sides out of step for good.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _WRITE_BOUND_S) as scope:
            async with self._write_lock:
                await self.secured_conn.write(data)
        if scope.cancelled_caught:
            await self._cleanup_on_error()
            raise MuxedStreamError("the peer takes no more")

    async def forget(self, stream: GuardedStream) -> None:
        """Drop a stream that was reset here, and its place."""
        async with self.streams_lock:
            self.stream_buffers.get(stream.stream_id, bytearray()).clear()
            self._finalize_stream_locked(stream, fully_closed=True)

    async def open_stream(self) -> library.YamuxStream:
        """Raises: MuxedStreamError, where there are too many already too."""
        if len(self.streams) >= MAX_STREAMS // 2:
            raise MuxedStreamError("too many streams are open")
        with trio.CancelScope(shield=True):
            opened = await super().open_stream()
        await trio.lowlevel.cancel_shielded_checkpoint()
        return opened

    async def close(self, error_code: int = library.GO_AWAY_NORMAL) -> None:
        """Never waits for a writer that stalls, as the library does."""
        if not self.event_shutting_down.is_set() and not self._write_lock.locked():
            header = struct.pack(
                library.YAMUX_HEADER_FORMAT, 0, library.TYPE_GO_AWAY, 0, 0, error_code
            )
            with trio.move_on_after(_CLOSE_BOUND_S, shield=True), suppress(*_WRITE_ERRORS):
                await self.secured_conn.write(header)
        await self._cleanup_on_error()

    async def _cleanup_on_error(self) -> None:
        if self.event_closed.is_set():
            return
        with trio.move_on_after(_CLEANUP_BOUND_S, shield=True):
            await super()._cleanup_on_error()


class GuardedMuxer(MuxerMultistream):
    """Offers yamux alone, and makes connections of the class above: the library has its own."""

    def __init__(self, max_unread_bytes: int, negotiate_timeout_s: int) -> None:
        super().__init__({TProtocol(library.PROTOCOL_ID): GuardedYamux}, negotiate_timeout_s)
        self._max_unread_bytes = max_unread_bytes

    async def new_conn(self, conn: ISecureConn, peer_id: ID) -> IMuxedConn:
        """Raises: MultiselectError, MultiselectClientError."""
        await self._selector.select(conn, conn.is_initiator, self.negotiate_timeout)
        return GuardedYamux(conn, peer_id, self._max_unread_bytes)
