"""The HTTP door as a process, in front of whatever gliad a test gives it, and raw requests."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from daemon.config import HttpConfig
from daemon.door_process import open_door
from daemon.paths import Paths
from tests.node_parts import ROOT

KEY = "k" * 43


class RunningDoor:
    """`python -m daemon.door` at a free port, for the gliad of a data dir.

    Args:
        key: "" where none is asked for.
    """

    def __init__(self, data_dir: Path, *, key: str = KEY, max_requests: int = 8) -> None:
        config = HttpConfig("127.0.0.1:0", require_key=False, max_requests=max_requests)
        door = open_door(config, Paths(data_dir))
        assert door is not None
        self.url = door.address
        self.key = key
        self.process = subprocess.Popen(
            door.argv,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(door.listen_fd,),
        )
        door.close()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{key}\n".encode())
        self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stderr):
            assert pipe is not None
            pipe.close()

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def end(self) -> str:
        """End it as gliad's end would; what it logged."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stderr is not None
        said = self.process.stderr.read().decode()
        self.process.wait(10)
        return said

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        """A request over a connection of its own. A body that is no bytes is sent as JSON."""
        return ask(self.address, path, body, **{"authorization": f"Bearer {self.key}", **headers})


@dataclass(frozen=True)
class Answer:
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"message", "type", "param", "code"}
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """Of a stream; the last is "[DONE]" where it ended well."""
        lines = [line for line in self.body.decode().split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        data = [line.removeprefix("data: ") for line in lines]
        return [json.loads(d) if d != "[DONE]" else d for d in data]


def ask(address: tuple[str, int], path: str, body: Any = None, **headers: str) -> Answer:
    """A request, a POST where it has a body. `_` in a header's name stands for `-`."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    sent = {"host": "localhost", "connection": "close", **headers}
    if body is not None:
        sent.setdefault("content_length", str(len(data)))
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items()]
    method = "GET" if body is None else "POST"
    head = f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")
    with socket.create_connection(address, timeout=60) as sock:
        sock.sendall(head + data)
        return read_answer(sock)


def read_answer(sock: socket.socket) -> Answer:
    """Everything until the other side closes."""
    data = b""
    while piece := sock.recv(65536):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _unchunked(body)
    return Answer(int(first.split()[1]), headers, body)


def _unchunked(data: bytes) -> bytes:
    """Raises: ValueError where the last chunk is missing."""
    body = b""
    while True:
        size, _, rest = data.partition(b"\r\n")
        num = int(size, 16)
        if not num:
            return body
        body, data = body + rest[:num], rest[num + 2 :]


def num_descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def num_gliad_connections(pid: int) -> int:
    """Of a door to its gliad: its Unix sockets, less the two pairs that trio has."""
    inodes = {
        line.split()[6] for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
    }
    return sum(target[8:-1] in inodes for target in _targets(pid)) - 4


def _targets(pid: int) -> list[str]:
    """What the descriptors of a process are."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(path))
    return found


def resident_bytes(pid: int) -> int:
    """Memory that a process has in use."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def listens(pid: int) -> list[str]:
    """Local addresses of the TCP sockets that a process has open, in any state."""
    inodes = {target[8:-1] for target in _targets(pid) if target.startswith("socket:[")}
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes:
                found.append(fields[1])
    return found
