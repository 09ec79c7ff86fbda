"""One connection, its greeting, and calls over it: what all groups of calls go through."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from glia.errors import NotRunning, RemoteProtocolError
from glia.local import messages as m
from glia.local.address import socket_path
from glia.local.connection import Connection, dial

OnProgress = Callable[[str, int, int], None]  # (what, done, total)
_HANDSHAKE_S = 10.0

R = TypeVar("R", bound=m.Reply)


class Caller:
    """A connection to a running gliad.

    Attributes:
        welcome: what gliad said of itself.
    """

    def __init__(self, connection: Connection, kind: str, name: str) -> None:
        self._connection = connection
        hello = m.Hello(connection.next_id(), m.PROTOCOL_VERSION, kind, name)
        self.welcome = self._answer(connection.call(hello), m.Welcome, _HANDSHAKE_S)
        self._arena_fd = connection.take_descriptor()

    @classmethod
    def connect(
        cls,
        target: str | os.PathLike[str],
        *,
        kind: str = "client",
        name: str = "",
        timeout_s: float = 10.0,
    ) -> Self:
        """Connect to the gliad of a data dir (or to a socket).

        Args:
            kind: client or engine.
            timeout_s: how long to wait for a gliad that is still starting.
        Raises: NotRunning, BadRequest (path too long), RemoteProtocolError (other version).
        """
        path = socket_path(target)
        connection = Connection(dial(path, timeout_s), path)
        try:
            return cls(connection, kind, name)
        except TimeoutError as error:
            connection.close()
            raise NotRunning(
                "gliad does not answer", hint="gliad stop, then gliad start"
            ) from error
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; leases and staging end with it. Idempotent.

        Arrays over `arena` and `staging` stay valid memory while they live.
        """
        self._connection.close()
        if self._arena_fd >= 0:
            os.close(self._arena_fd)
            self._arena_fd = -1

    def fileno(self) -> int:
        """For poll and select."""
        return self._connection.fileno()

    def _id(self) -> int:
        return self._connection.next_id()

    def _call(self, call: m.Call, reply: type[R], on_progress: OnProgress | None = None) -> R:
        return self._answer(self._connection.call(call), reply, on_progress=on_progress)

    def _answer(
        self,
        call_id: int,
        reply: type[R],
        timeout_s: float | None = None,
        *,
        on_progress: OnProgress | None = None,
    ) -> R:
        while True:
            message = self._connection.take(call_id, timeout_s)
            if isinstance(message, reply):
                return message
            if not isinstance(message, m.Progress):
                raise RemoteProtocolError(f"a {type(message).__name__} answers nothing here")
            if on_progress is not None:
                on_progress(message.what, message.done, message.total)
