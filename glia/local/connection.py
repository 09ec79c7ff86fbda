"""One synchronous connection to gliad: frames out, and what comes back sorted by call.

Replies and events wait in the inbox of their call, calls of gliad (to an engine) in
a queue of their own. Never blocks on sending while the other side cannot send: so pipelining
cannot deadlock. For one thread.
"""

from __future__ import annotations

import array
import os
import select
import shlex
import socket
import struct
import time
from collections import deque
from pathlib import Path

from msgspec import Struct

from glia.errors import GliaError, NotRunning, RemoteProtocolError, error_from_code
from glia.local.address import LOCK_NAME, SOCKET_NAME
from glia.local.frames import FrameParser, decode_from_daemon, encode_frame
from glia.local.messages import Call, DaemonMessage, Failed, Reply

_RECEIVE_BYTES = 256 * 1024
_MAX_DESCRIPTORS = 4
_RETRY_S = 0.02
_PEER = struct.Struct("3i")  # pid, uid, gid
CONNECTION_ID = 0  # a Failed of this id is about the connection


def dial(path: Path, timeout_s: float) -> socket.socket:
    """A connected socket; waits up to `timeout_s` for a gliad that is still starting.

    Raises: NotRunning where there is none, or where it is another user's.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.connect(os.fspath(path))
        except OSError as error:
            sock.close()
            if isinstance(error, PermissionError):
                raise NotRunning(
                    f"{path}: not yours to open", hint="run as the user who started gliad"
                ) from error
            if time.monotonic() > deadline or not _is_starting(path):
                raise not_running(path) from error
            time.sleep(_RETRY_S)
        else:
            _check_owner(sock, path)
            return sock


def _check_owner(sock: socket.socket, path: Path) -> None:
    """Prompts go to a gliad of our own only."""
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(peer)
    if uid != os.geteuid():
        sock.close()
        raise NotRunning(f"the gliad at {path.parent} is of uid {uid}", hint=_start_hint(path))


def not_running(path: Path) -> NotRunning:
    """No gliad answers at `path`."""
    return NotRunning(f"no gliad is running at {path.parent}", hint=_start_hint(path))


def _start_hint(path: Path) -> str:
    named = f" --data-dir {shlex.quote(str(path.parent))}" if path.name == SOCKET_NAME else ""
    return f"gliad start{named}"


def _is_starting(path: Path) -> bool:
    """Whether the lock beside the socket names a live process."""
    try:
        pid = int((path.parent / LOCK_NAME).read_text()[:32])
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return pid > 0


class Connection:
    """Sends calls, sorts what comes back."""

    def __init__(self, sock: socket.socket, path: Path) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._path = path
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._parser = FrameParser()
        self._inboxes: dict[int, deque[DaemonMessage]] = {}
        self._unwanted: set[int] = set()
        self._descriptors: deque[int] = deque()
        self._next_id = 1
        self._pushed: deque[DaemonMessage] = deque()

    def fileno(self) -> int:
        """For poll and select."""
        return self._sock.fileno()

    def next_id(self) -> int:
        """An id no other call of this connection has."""
        self._next_id += 1
        return self._next_id - 1

    def call(self, call: Call) -> int:
        """Send a call; its answers wait until `take`."""
        self._inboxes[call.id] = deque()
        self.send(call)
        return call.id

    def call_unanswered(self, call: Call) -> None:
        """Send a call whose reply nobody waits for."""
        self._unwanted.add(call.id)
        self.send(call)

    def abandon(self, call_id: int) -> None:
        """Nobody waits for this call's answers any more."""
        inbox = self._inboxes.pop(call_id, None)
        if inbox is not None and not any(isinstance(message, Reply) for message in inbox):
            self._unwanted.add(call_id)

    def send(self, message: Struct) -> None:
        """Send a message. Raises: LocalProtocolError (too large), NotRunning (gliad is gone)."""
        rest = memoryview(encode_frame(message))
        while rest:
            try:
                sent = self._sock.send(rest, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._wait(select.POLLIN | select.POLLOUT, None)
                self.receive(0.0)
            except OSError as error:
                self._drain()
                raise self._gone() from error
            else:
                rest = rest[sent:]

    def take(self, call_id: int, timeout_s: float | None = None) -> DaemonMessage:
        """The next event or the reply of a call.

        Raises: what the call failed with; NotRunning where gliad went away;
            TimeoutError.
        """
        inbox = self._inboxes[call_id]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not inbox:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"no answer within {timeout_s} s")
            self.receive(left)
        message = inbox.popleft()
        if isinstance(message, Reply):
            del self._inboxes[call_id]
        if isinstance(message, Failed):
            raise error_from_code(message.code, message.message, message.hint)
        return message

    def has_answer(self, call_id: int) -> bool:
        """Whether `take` would return at once."""
        if not self._inboxes[call_id]:
            self.receive(0.0)
        return bool(self._inboxes[call_id])

    def take_pushed(self, timeout_s: float | None) -> DaemonMessage | None:
        """The next call of gliad, or None where none comes in time (None: wait for ever)."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._pushed:
            left = None if deadline is None else deadline - time.monotonic()
            if not self.receive(left) and left is not None and left <= 0:
                return None
        return self._pushed.popleft()

    def take_descriptor(self) -> int:
        """The file descriptor that came with a reply; the caller owns it."""
        if not self._descriptors:
            raise RemoteProtocolError("the reply carries no file descriptor")
        return self._descriptors.popleft()

    def receive(self, timeout_s: float | None) -> bool:
        """Take in what has arrived, waiting for it up to `timeout_s`; whether anything had."""
        if not self._wait(select.POLLIN, timeout_s):
            return False
        room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * 4)
        try:
            data, ancillary, _, _ = self._sock.recvmsg(
                _RECEIVE_BYTES, room, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._gone() from error
        for level, kind, packed in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(packed[: len(packed) - len(packed) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if not data:
            raise self._gone()
        for frame in self._parser.feed(data):
            self._route(decode_from_daemon(frame))
        return True

    def close(self) -> None:
        """Close the socket; gliad then drops what this connection held. Idempotent."""
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._sock.close()

    def _drain(self) -> None:
        """Take in what gliad said before it hung up. Raises: why it did."""
        while self._sock.fileno() >= 0 and self.receive(0.0):
            pass

    def _route(self, message: DaemonMessage) -> None:
        if isinstance(message, Call):
            self._pushed.append(message)
        elif message.id == CONNECTION_ID and isinstance(message, Failed):
            raise error_from_code(message.code, message.message, message.hint)
        elif message.id in self._inboxes:
            self._inboxes[message.id].append(message)
        elif message.id not in self._unwanted:
            raise RemoteProtocolError(f"an answer to a call that was not made: {message.id}")
        elif isinstance(message, Reply):
            self._unwanted.discard(message.id)

    def _wait(self, events: int, timeout_s: float | None) -> bool:
        self._poll.modify(self._sock, events)
        return bool(self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000))

    def _gone(self) -> GliaError:
        return NotRunning("gliad closed the connection", hint=_start_hint(self._path))
