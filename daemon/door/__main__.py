"""`python -m daemon.door`: the process, started by gliad (daemon/door_process.py says how)."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from daemon.door.app import DoorApp
from daemon.door.connections import Connections
from daemon.door.endpoints import Endpoints
from daemon.door.gliad import Gliad
from daemon.door.guard import Guard
from daemon.door.metrics import DoorMetrics

_SPARE_CONNECTIONS = 64  # beyond those whose requests are served
_KEY_BYTES = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stdin ends. Returns the exit code: 1 where it ended before the key."""
    parser = argparse.ArgumentParser(prog="python -m daemon.door")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--listen-fd", type=int, required=True)
    parser.add_argument("--max-requests", type=int, required=True)
    args = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    line = sys.stdin.buffer.readline(_KEY_BYTES)
    if not line.endswith(b"\n"):  # cut off by gliad's end, it is not the key, and "" is none
        return 1
    key = line.strip().decode()
    metrics = DoorMetrics()
    endpoints = Endpoints(Gliad(args.socket, args.max_requests), metrics)
    app = DoorApp(endpoints.routes(), Guard(key), metrics, args.max_requests)
    connections = Connections(app, args.max_requests + _SPARE_CONNECTIONS)
    trio.run(_serve, connections, args.listen_fd)
    return 0


async def _serve(connections: Connections, listen_fd: int) -> None:
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(socket.socket(fileno=listen_fd)))
    stdin = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
    async with listener, stdin, trio.open_nursery() as nursery:
        nursery.start_soon(connections.serve, listener)
        while await stdin.receive_some():
            pass
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    sys.exit(main())
