"""The HTTP door as gliad sees it: where it listens, its key, and the process that serves it.

The door has no more rights than any client of the local socket. gliad opens the listening
socket: so a port that is taken is told at start, and requests wait while a door that
crashed is started again.

Contract with `python -m daemon.door`: it serves the socket at --listen-fd. The first line of
its stdin is the key, empty where none is asked for; the end of stdin is the end of gliad.
What it writes to stderr goes to the log (a door writes no tokens and no text there).
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from pathlib import Path

import trio

from daemon.child import end, how_ended, log_lines
from daemon.config import HttpConfig
from daemon.http_key import http_key
from daemon.paths import Paths
from glia.errors import BadRequest

DOOR_PROGRAM = (sys.executable, "-m", "daemon.door")
_BACKLOG = 128
_FIRST_PAUSE_S = 0.1
_LAST_PAUSE_S = 30.0
_STEADY_S = 60.0  # one that served so long is started again at once
_UNSENT_MS = 30_000  # a client that does not read for so long is dropped by the kernel
_log = logging.getLogger("gliad.door")


class Door:
    """The door of a node that has one.

    Args:
        listener: bound to a loopback address, listening.
        key: what requests must carry, "" where nothing.
        program: the command that is a door, up to its flags.

    Attributes:
        address: where it is to be found, `http://HOST:PORT`.
        argv: the process's command line.
        num_restarts: how often its process ended by itself.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: str,
        config: HttpConfig,
        gliad: Path,
        program: tuple[str, ...] = DOOR_PROGRAM,
    ) -> None:
        self._listener = listener
        self._key = key
        self.argv = [
            *program,
            *("--socket", str(gliad)),
            *("--listen-fd", str(listener.fileno())),
            *("--max-requests", str(config.max_requests)),
        ]
        self.address = f"http://{_written(listener)}"
        self.num_restarts = 0

    @property
    def listen_fd(self) -> int:
        """The listening socket, for the process to inherit."""
        return self._listener.fileno()

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    async def run(self) -> None:
        """Keep a process serving until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            begun_s = trio.current_time()
            _log.warning("the HTTP door ended %s", await self._serve())
            is_steady = trio.current_time() - begun_s >= _STEADY_S
            pause_s = _FIRST_PAUSE_S if is_steady else min(2 * pause_s, _LAST_PAUSE_S)
            await trio.sleep(pause_s)
            self.num_restarts += 1

    async def _serve(self) -> str:
        """One life of the process, and how it ended."""
        try:
            process = await trio.lowlevel.open_process(
                self.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(self.listen_fd,),
                start_new_session=True,
            )
        except OSError as error:
            return f"before it began: {error.strerror}"
        _log.info("the HTTP door starts: pid %d, %s", process.pid, self.address)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log_lines, process, _log)
                nursery.start_soon(self._hand_key, process)
                await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await end(process)
        return how_ended(process.returncode or 0)

    async def _hand_key(self, process: trio.Process) -> None:
        if process.stdin is not None:
            try:
                await process.stdin.send_all(f"{self._key}\n".encode())
            except trio.BrokenResourceError:
                _log.warning("the HTTP door took no key")


def open_door(config: HttpConfig, paths: Paths) -> Door | None:
    """The door that the settings ask for, listening; None where they ask for none.

    Raises: BadRequest (the address is taken, the key's file is not private), StoreBroken.
    """
    if not config.listen:
        return None
    key = http_key(paths.http_key) if config.require_key else ""
    return Door(_listen(config.listen), key, config, paths.socket)


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNSENT_MS)
        sock.bind((host, int(port)))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise BadRequest(
            f"http.listen: {address}: {error.strerror}", hint="choose another port in glia.toml"
        ) from error
    return sock


def _written(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
