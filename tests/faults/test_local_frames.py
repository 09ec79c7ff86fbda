"""Frames that break the rules: the sender is dropped, everybody else is served."""

from __future__ import annotations

import os
import random
import socket
import struct
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest

from glia.errors import LocalProtocolError, RemoteProtocolError
from glia.local import messages as m
from glia.local import values
from glia.local.frames import FrameParser, decode_from_client, decode_from_daemon, encode_frame
from tests.node_parts import FULL, RunningNode, until
from tests.pace import Stopwatch

ROUNDS = 20_000 if FULL else 2_000
HELLO = bytes(encode_frame(m.Hello(1, m.PROTOCOL_VERSION, "client", "test")))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("frames") / "node") as running:
        yield running


def frame(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


BAD = {
    "an empty frame": frame(b""),
    "a frame too large": struct.pack("<I", m.MAX_FRAME_BYTES + 1),
    "a length of 4 GiB": b"\xff\xff\xff\xff",
    "not msgpack": frame(b"\xc1\xc1\xc1"),
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "an unknown message": frame(msgspec.msgpack.encode(["Format", 1])),
    "a message of gliad's": bytes(encode_frame(m.Matched(1, []))),
    "a name too short": bytes(frame(msgspec.msgpack.encode(["Chain", 1, b"x", 0]))),
    "a negative id": frame(msgspec.msgpack.encode(["Status", -1])),
    "deep nesting": frame(b"\x91" * 100_000),
    "a huge array": frame(b"\xdd\xff\xff\xff\xff"),
    "a second hello": HELLO,
    "tokens of an engine": bytes(encode_frame(m.Emitted(1, [1]))),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("greets", [True, False])
def test_the_sender_is_dropped(node: RunningNode, bad: str, greets: bool) -> None:
    if bad == "a second hello" and not greets:
        return
    bystander = node.client()
    dropped = bystander.status().counters.get("dropped", 0)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.fspath(node.data_dir / "gliad.sock"))
        sock.settimeout(10.0)
        sock.sendall((HELLO if greets else b"") + BAD[bad])
        while sock.recv(65536):  # what it says before it hangs up
            pass
    status = bystander.status()
    assert status.counters["dropped"] == dropped + 1
    assert "crashed" not in status.counters


def test_why_is_said_before_hanging_up(node: RunningNode) -> None:
    client = node.client()
    client._connection.send(m.Emitted(1, [1]))
    with pytest.raises(RemoteProtocolError, match="Emitted"):
        client.status()


def test_another_protocol_version_is_refused(node: RunningNode) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.fspath(node.data_dir / "gliad.sock"))
        sock.settimeout(10.0)
        sock.sendall(encode_frame(m.Hello(1, 99, "client", "")))
        parser, frames = FrameParser(), []
        while data := sock.recv(65536):
            frames += parser.feed(data)
    (reply,) = [decode_from_daemon(data) for data in frames]
    assert isinstance(reply, m.Failed)
    assert "protocol 99" in reply.message


def test_random_frames_crash_nothing(node: RunningNode) -> None:
    """Mutants of good calls, on connections that are opened anew when they are dropped."""
    rng = random.Random(7)
    calls = [
        m.Status(1),
        m.Chain(2, bytes(32)),
        m.Attach(
            3, bytes(32), values.ProfileValue(16, 2, 1, [values.ShapeValue(0, 1, 4)]), "native:x"
        ),
        m.Staging(4, 4096),
        m.Match(5, list(range(40))),
        m.Lease(6, [bytes(32), bytes(range(32))]),
        m.Release(7, 1),
        m.Seal(8, None, 0, list(range(16)), 0, 1),
        m.Flush(9, [bytes(32)]),
        m.Evict(10, "l1"),
        m.Cancel(11, 1),
        m.Generate(12, "x", None, [1], 1, values.SamplingValue(), [], []),
    ]
    good = [bytes(encode_frame(call)[4:]) for call in calls]
    sock: socket.socket | None = None
    for _ in range(ROUNDS):
        if sock is None:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(os.fspath(node.data_dir / "gliad.sock"))
            sock.sendall(HELLO)
        payload = bytearray(rng.choice(good))
        for _ in range(rng.choice((0, 1, 1, 2, 8))):
            payload[rng.randrange(len(payload))] = rng.randrange(256)
        try:
            sock.sendall(frame(bytes(payload)))
            sock.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
            sock = None
    if sock is not None:
        sock.close()
    watcher = node.client()
    until(lambda: watcher.status().counters["connections"] > 0)
    assert "crashed" not in watcher.status().counters, node.log[-4000:]


BOMBS = {
    "nested arrays": b"\x91" * 1_000_000,
    "nested maps": b"\x81\xa1x" * 300_000,
    "an array of 4 G": b"\xdd\xff\xff\xff\xff" + b"\x01" * 1000,
    "a map of 4 G": b"\xdf\xff\xff\xff\xff",
    "a text of 4 G": b"\xdb\xff\xff\xff\xff",
    "bytes of 4 G": b"\x92\xa6Status\xc6\xff\xff\xff\xff",
    "tokens that nest": b"\x93\xa5Match\x01" + b"\x91" * 1_000_000,
    "a million wrong tokens": b"\x93\xa5Match\x01\xdd\x00\x0f\x42\x40" + b"\xc0" * 1_000_000,
    "a million wrong fields": b"\xdd\x00\x0f\x42\x40" + b"\xc0" * 1_000_000,
}


@pytest.mark.fault("F34")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_fast_and_small(bomb: str) -> None:
    """50 ms, 4 MiB: before it is decoded further than its first fault."""
    taken = []
    tracemalloc.start()
    try:
        for _ in range(5):
            watch = Stopwatch()
            with pytest.raises(RemoteProtocolError):
                decode_from_client(BOMBS[bomb])
            taken.append(watch.took_s())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert min(taken) <= 0.05
    assert peak < 4 * 1024 * 1024


def test_the_parser_takes_any_cut() -> None:
    messages = [m.Status(n) for n in range(20)] + [m.Match(99, list(range(5000)))]
    data = b"".join(bytes(encode_frame(message)) for message in messages)
    rng = random.Random(3)
    for _ in range(50):
        parser, got, at = FrameParser(), [], 0
        while at < len(data):
            cut = at + rng.choice((1, 2, 3, 5, 100, 10_000))
            got += [decode_from_client(f) for f in parser.feed(data[at:cut])]
            at = cut
        assert got == messages
        assert parser.num_pending == 0


def test_the_parser_refuses_a_length_before_it_buffers() -> None:
    parser = FrameParser()
    with pytest.raises(RemoteProtocolError, match="cannot be 1048577 bytes"):
        parser.feed(struct.pack("<I", m.MAX_FRAME_BYTES + 1) + b"x")


def test_a_message_of_ours_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode_frame(m.Match(1, [2**32 - 1] * 300_000))


def test_hanging_up_right_behind_a_bad_frame(node: RunningNode) -> None:
    """The reader accuses while the sender finds nobody there."""
    watcher = node.client()
    before = watcher.status().counters.get("dropped", 0)
    statuses = b"".join(bytes(encode_frame(m.Status(n))) for n in range(50))
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(os.fspath(node.data_dir / "gliad.sock"))
            sock.sendall(HELLO + statuses + BAD["an unknown message"])
    until(lambda: watcher.status().counters["dropped"] > before)
    assert "crashed" not in watcher.status().counters, node.log[-4000:]
