"""Connections: bounded in number and in time. Each is hypercorn's, over one ASGI app.

hypercorn's own `serve` takes any number of connections, and an exception in one ends them
all. So its class for one connection is used, in a task of ours. It speaks HTTP/2 where a
client begins with that, and web sockets: neither is served here, such a connection ends.
"""

from __future__ import annotations

import errno
import logging
import math
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, Scope
from starlette.types import ASGIApp, Receive, Send

from daemon.door.faults import place_of

_HEAD_S = 10.0  # from connecting, or from the last answer, to the end of a request's head
_LATE_S = 5.0  # after that even a connection that hypercorn does not close
_MAX_HEAD_BYTES = 32 * 1024
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.05
_log = logging.getLogger("door")


class Connections:
    """All that are open.

    Args:
        max_open: then the oldest that has no request under way gives way.
    """

    def __init__(self, app: ASGIApp, max_open: int) -> None:
        self._app = app
        self._max_open = max_open
        self._config = _config()
        self._waiting: dict[trio.CancelScope, None] = {}  # for a request; oldest first
        self._num_open = 0

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno in _EXHAUSTED:
                        self._drop_oldest()
                        await trio.sleep(_PAUSE_S)
                    continue
                if self._num_open >= self._max_open and not self._drop_oldest():
                    await trio.aclose_forcefully(stream)
                    continue
                nursery.start_soon(self._converse, stream)

    def _drop_oldest(self) -> bool:
        for scope in self._waiting:
            scope.cancel()
            del self._waiting[scope]
            return True
        return False

    async def _converse(self, stream: trio.SocketStream) -> None:
        """One connection; nothing but cancellation leaves here."""
        scope = trio.CancelScope()
        self._num_open += 1
        try:
            with scope:
                self._wait(scope)
                context, state = WorkerContext(None), ConnectionState(cast(Any, {}))
                await TCPServer(
                    self._app_of(scope), self._config, context, cast(Any, state), cast(Any, stream)
                )
        except Exception as error:
            _log.error("a connection crashed: %s", place_of(error))
        finally:
            stream.socket.close()  # hypercorn does not where it is cancelled
            self._waiting.pop(scope, None)
            self._num_open -= 1

    def _wait(self, scope: trio.CancelScope) -> None:
        self._waiting[scope] = None
        scope.deadline = trio.current_time() + _HEAD_S + _LATE_S

    def _app_of(self, connection: trio.CancelScope) -> Any:
        async def answer(scope: Scope, receive: Any, send: Any, *_: Any) -> None:
            version = scope.get("http_version", "")
            if scope["type"] != "http" or version not in ("1.0", "1.1"):
                connection.cancel()
                return
            self._waiting.pop(connection, None)
            connection.deadline = math.inf
            try:
                await self._app(cast(Any, scope), cast(Receive, receive), cast(Send, send))
            finally:
                self._wait(connection)

        return answer


def _config() -> Config:
    """hypercorn's, which logs nothing: its lines would quote requests."""
    config = Config()
    config.keep_alive_timeout = _HEAD_S
    config.h11_max_incomplete_size = _MAX_HEAD_BYTES
    config.include_server_header = False
    config.accesslog = config.errorlog = None
    return config
