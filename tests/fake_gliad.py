"""A gliad that says what it is told to say: for tests of what talks to one."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from msgspec import Struct

from glia.errors import GliaError
from glia.local import messages as m
from glia.local.address import SOCKET_NAME
from glia.local.frames import FrameParser, decode_from_client, encode_frame

Answer = Callable[[m.Call], Iterable[Struct]]


class FakeGliad:
    """Serves one connection after another on DIR's socket until it is closed.

    Args:
        answer: events and the reply to a call; a GliaError raised there travels as Failed.

    Attributes:
        calls: every call that came, Hello aside.
    """

    def __init__(self, data_dir: Path, answer: Answer) -> None:
        self._answer = answer
        self.calls: list[m.Call] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(data_dir / SOCKET_NAME))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                self._connection(sock)

    def _connection(self, sock: socket.socket) -> None:
        parser = FrameParser()
        while data := sock.recv(65536):
            for frame in parser.feed(data):
                call = decode_from_client(frame)
                if isinstance(call, m.Hello):
                    self._welcome(sock, call)
                elif isinstance(call, m.Call):
                    self.calls.append(call)
                    self._reply(sock, call)

    def _welcome(self, sock: socket.socket, hello: m.Hello) -> None:
        welcome = m.Welcome(hello.id, m.PROTOCOL_VERSION, "0", os.getpid(), 0)
        arena = os.memfd_create("arena")
        socket.send_fds(sock, [encode_frame(welcome)], [arena])
        os.close(arena)

    def _reply(self, sock: socket.socket, call: m.Call) -> None:
        try:
            for message in self._answer(call):
                sock.sendall(encode_frame(message))
        except GliaError as error:
            sock.sendall(encode_frame(m.Failed(call.id, error.code, error.message, error.hint)))
