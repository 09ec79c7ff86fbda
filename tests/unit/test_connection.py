"""The client's connection over a socket pair: what comes back finds its call."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.errors import NotFound, NotRunning, RemoteProtocolError
from glia.local import messages as m
from glia.local.connection import Connection
from glia.local.frames import FrameParser, decode_from_client, encode_frame


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    connection = Connection(ours, Path("/nowhere/gliad.sock"))
    yield connection, theirs
    connection.close()
    theirs.close()


Pair = tuple[Connection, socket.socket]


def test_answers_are_sorted_by_call_and_calls_of_gliad_wait_apart(pair: Pair) -> None:
    connection, theirs = pair
    first, second = connection.call(m.Status(1)), connection.call(m.Match(2, [1]))
    for message in (
        m.CancelRun(1, 7),
        m.Matched(2, []),
        m.Progress(1, "x", 1, 2),
        m.EvictL0(2),
        m.Done(1),
    ):
        theirs.sendall(encode_frame(message))
    assert connection.take(first) == m.Progress(1, "x", 1, 2)
    assert connection.has_answer(second)
    assert connection.take(first) == m.Done(1)
    assert connection.take_pushed(0.0) == m.CancelRun(1, 7)
    assert connection.take(second) == m.Matched(2, [])
    assert connection.take_pushed(None) == m.EvictL0(2)
    assert connection.take_pushed(0.0) is None


def test_failures_are_raised_as_what_they_are(pair: Pair) -> None:
    connection, theirs = pair
    connection.call(m.Status(1))
    theirs.sendall(encode_frame(m.Failed(1, "not_found", "no such thing", "look elsewhere")))
    with pytest.raises(NotFound, match="no such thing") as failed:
        connection.take(1)
    assert failed.value.hint == "look elsewhere"
    theirs.sendall(encode_frame(m.Failed(0, "remote_protocol", "bad manners", None)))
    connection.call(m.Status(2))
    with pytest.raises(RemoteProtocolError, match="bad manners"):
        connection.take(2)


def test_what_nobody_waits_for_is_dropped_and_what_nobody_asked_is_refused(pair: Pair) -> None:
    connection, theirs = pair
    connection.call_unanswered(m.Release(1, 5))
    connection.call(m.Status(2))
    connection.abandon(2)
    theirs.sendall(encode_frame(m.Done(1)))
    theirs.sendall(encode_frame(m.Progress(2, "x", 1, 2)))
    theirs.sendall(encode_frame(m.Done(2)))
    connection.call(m.Status(3))
    theirs.sendall(encode_frame(m.Done(3)))
    assert connection.take(3) == m.Done(3)
    connection.call(m.Status(4))
    theirs.sendall(encode_frame(m.Done(2)))  # once more
    with pytest.raises(RemoteProtocolError, match="not made: 2"):
        connection.take(4)


def test_time_runs_out_and_the_end_is_told(pair: Pair) -> None:
    connection, theirs = pair
    connection.call(m.Status(1))
    with pytest.raises(TimeoutError):
        connection.take(1, 0.01)
    theirs.close()
    with pytest.raises(NotRunning, match="closed the connection") as gone:
        connection.take(1)
    assert gone.value.hint == "gliad start --data-dir /nowhere"
    with pytest.raises(NotRunning):
        connection.send(m.Status(2))


def test_descriptors_come_in_order(pair: Pair) -> None:
    connection, theirs = pair
    connection.call(m.Staging(1, 10))
    connection.call(m.Staging(2, 10))
    for call_id, text in ((1, b"one"), (2, b"two")):
        fd = os.memfd_create("test")
        os.write(fd, text)
        socket.send_fds(theirs, [encode_frame(m.Done(call_id))], [fd])
        os.close(fd)
    for call_id, text in ((1, b"one"), (2, b"two")):
        connection.take(call_id)
        fd = connection.take_descriptor()
        assert os.pread(fd, 10, 0) == text
        assert not os.get_inheritable(fd)
        os.close(fd)
    with pytest.raises(RemoteProtocolError, match="no file descriptor"):
        connection.take_descriptor()


def test_pipelining_does_not_deadlock(pair: Pair) -> None:
    """Both sides write far more than sockets hold; the far side reads only when it has written."""
    connection, theirs = pair
    count, windows = 300, [bytes(32)] * 300

    def far_side() -> None:
        parser, num_calls = FrameParser(), 0
        while num_calls < count:
            for frame in parser.feed(theirs.recv(4096)):
                call = decode_from_client(frame)
                theirs.sendall(encode_frame(m.Matched(call.id, windows)))
                num_calls += 1

    thread = threading.Thread(target=far_side)
    thread.start()
    tickets = [connection.call(m.Match(n + 1, list(range(2000)))) for n in range(count)]
    assert all(connection.take(ticket, 30.0) == m.Matched(ticket, windows) for ticket in tickets)
    thread.join()
