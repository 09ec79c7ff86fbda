"""go-libp2p as another process: a p2pd, told through its socket whom to dial and what to open.

Its protobuf messages are written here by hand: there are three, of few fields
(p2pd.proto of go-libp2p-daemon).
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr

from tests.node_parts import until

_CONNECT, _STREAM_OPEN = 1, 2  # types of requests, and one less than their fields
_OK = b"\x08\x00"
_FLAGS = (
    *("-q", "-noListenAddrs", "-tls=false", "-quic=false"),
    *("-relay=false", "-relayService=false", "-relayDiscovery=false"),
)


class GoPeer:
    """A p2pd that runs."""

    def __init__(self, control: Path) -> None:
        self._control = control

    def connect(self, address: str) -> None:
        """Dial, shake hands, identify."""
        info = info_from_p2p_addr(Multiaddr(address))
        fields = _field(1, info.peer_id.to_bytes()) + _field(2, info.addrs[0].to_bytes())
        self._ask(_CONNECT, fields).close()

    def open(self, address: str, protocol: str) -> socket.socket:
        """A stream to the peer there: all that comes and goes on this socket is the stream's."""
        peer = info_from_p2p_addr(Multiaddr(address)).peer_id.to_bytes()
        return self._ask(_STREAM_OPEN, _field(1, peer) + _field(2, protocol.encode()))

    def _ask(self, kind: int, fields: bytes) -> socket.socket:
        """Ask it one thing; the connection that it was asked on."""
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(20)
        link.connect(str(self._control))
        request = bytes((0x08, kind)) + _field(kind + 1, fields)
        link.sendall(_varint(len(request)) + request)
        answer = read_exactly(link, _read_varint(link))
        assert answer.startswith(_OK), answer
        return link


@contextmanager
def go_peer(program: Path, directory: Path) -> Iterator[GoPeer]:
    """One that listens nowhere but on a socket in a directory."""
    control = directory / "p2pd.sock"
    command = [str(program), "-listen", f"/unix{control}", *_FLAGS]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until(control.exists)
        yield GoPeer(control)
    finally:
        process.terminate()
        process.wait(10)


def read_exactly(link: socket.socket, num_bytes: int) -> bytes:
    data = b""
    while len(data) < num_bytes:
        part = link.recv(num_bytes - len(data))
        assert part, f"it ended after {len(data)} of {num_bytes} bytes"
        data += part
    return data


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes((value & 127 | 128,))
        value >>= 7
    return data + bytes((value,))


def _read_varint(link: socket.socket) -> int:
    value = shift = 0
    while True:
        (byte,) = read_exactly(link, 1)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value
