"""The local socket: who may connect, how many, and how long a silent one is waited for.

A connection counts as half-open until its Hello. There is room for few of those: the
oldest gives way, so that a thousand silent ones keep nobody out.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio

from daemon.parts import Parts
from daemon.session import Session
from daemon.wire import Peer, Wire, peer_of
from glia.errors import BadRequest, GliaError, QuotaExceeded, RemoteProtocolError
from glia.local.messages import Failed, Hello

_BACKLOG = 1024
_MAX_HALF_OPEN = 64
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.05
_OWN_FILES = 32
_log = logging.getLogger("gliad.server")


def listen(path: Path) -> socket.socket:
    """The listening socket at `path`, mode 0600; one left by a dead gliad is replaced.

    The caller holds the data dir's lock. Raises: BadRequest for anything else at `path`.
    """
    if path.is_socket() and not path.is_symlink():
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        sock.bind(os.fspath(path))
    except OSError as error:
        sock.close()
        raise BadRequest(f"{path}: {error.strerror}", hint=f"rm {path}") from error
    finally:
        os.umask(before)
    sock.listen(_BACKLOG)
    return sock


class Server:
    """Accepts connections and gives each a session."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._half_open: dict[trio.CancelScope, None] = {}
        self._num_open = Counter[str]()  # by kind: clients keep no engine out

    async def run(self, listener: socket.socket) -> None:
        """Serve for ever."""
        sock = trio.socket.from_stdlib_socket(listener)
        async with trio.open_nursery() as nursery:
            while True:
                accepted = await self._accept(sock)
                if accepted is not None:
                    nursery.start_soon(self._serve, accepted)

    async def _accept(self, sock: trio.socket.SocketType) -> trio.socket.SocketType | None:
        await trio.lowlevel.wait_readable(sock)
        try:
            _see_room(sock)
            accepted, _ = await sock.accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                return None
            self._parts.counters["accept_failed"] += 1
            self._drop_oldest()
            await trio.sleep(_PAUSE_S)
            return None
        if len(self._half_open) >= _MAX_HALF_OPEN:
            self._drop_oldest()
        return accepted

    def _drop_oldest(self) -> None:
        for scope in self._half_open:
            scope.cancel()
            del self._half_open[scope]
            self._parts.counters["half_open_dropped"] += 1
            return

    async def _serve(self, sock: trio.socket.SocketType) -> None:
        """One connection; nothing but cancellation leaves here."""
        with sock:
            try:
                peer = peer_of(sock)
                if peer.uid != os.geteuid():
                    self._parts.counters["refused_uid"] += 1
                    _log.warning("refused uid %d", peer.uid)
                    return
                await self._converse(Wire(sock), peer)
            except* Exception as crash:  # a cancellation beside it goes on
                _log.exception("a connection crashed: %s", type(crash.exceptions[0]).__name__)
                self._parts.counters["crashed"] += 1

    async def _converse(self, wire: Wire, peer: Peer) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, wire)
            try:
                await self._session(wire, peer)
            except (RemoteProtocolError, QuotaExceeded) as error:
                self._parts.counters["dropped"] += 1
                _log.warning("dropped a connection of pid %d: %s", peer.pid, error)
                await self._say_failed(wire, error)
            finally:
                nursery.cancel_scope.cancel()

    async def _send(self, wire: Wire) -> None:
        with suppress(OSError):
            await wire.run_sender()
        wire.lose()  # the session ends by it

    async def _session(self, wire: Wire, peer: Peer) -> None:
        with self._opening() as scope:
            messages = await wire.receive()
        if scope.cancelled_caught or messages is None:
            return
        hello = messages[0]
        if not isinstance(hello, Hello):
            raise RemoteProtocolError("a connection starts with Hello")
        if self._num_open[hello.kind] >= self._parts.config.api.max_clients:
            raise QuotaExceeded(
                f"{self._num_open[hello.kind]} {hello.kind}s are connected, no more may",
                hint="raise api.max_clients in glia.toml",
            )
        session = Session(self._parts, wire, peer)
        session.welcome(hello)
        self._num_open[hello.kind] += 1
        self._parts.counters["connections"] += 1
        try:
            await session.run(messages[1:])
        except BaseExceptionGroup as group:
            raise _accusation(group) from group
        finally:
            self._num_open[hello.kind] -= 1

    @contextmanager
    def _opening(self) -> Iterator[trio.CancelScope]:
        with trio.move_on_after(self._parts.config.api.handshake_timeout_s) as scope:
            self._half_open[scope] = None
            try:
                yield scope
            finally:
                self._half_open.pop(scope, None)

    async def _say_failed(self, wire: Wire, error: GliaError) -> None:
        """Tell the other side why, if it listens; id 0 stands for the connection."""
        with suppress(QuotaExceeded), trio.move_on_after(0.5):
            wire.post(Failed(0, error.code, error.message, error.hint))
            await wire.drained()


def _see_room(sock: trio.socket.SocketType) -> None:
    """Leave descriptors for files: who is connected is to be served. Raises: OSError (EMFILE)."""
    fd = os.dup(sock.fileno())  # the lowest number that is free
    os.close(fd)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if fd >= soft - _OWN_FILES:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _accusation(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to drop a client for, where the group says nothing worse; else the group.

    A cancellation beside it (the client hung up, too) comes back at the next checkpoint.
    """
    known, rest = group.split((RemoteProtocolError, QuotaExceeded))
    if known is None or (rest is not None and rest.split(trio.Cancelled)[1] is not None):
        return group
    error: BaseException = known
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
