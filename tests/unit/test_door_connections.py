"""Connections are bounded in number and time, whatever their clients do. Clocks are mocked."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daemon import door_process
from daemon.config import HttpConfig
from daemon.door.bodies import read_body
from daemon.door.connections import Connections
from daemon.door.refusals import Refusal
from daemon.paths import Paths

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
MIB = 1024 * 1024


async def hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def in_time(test: Callable[[], Awaitable[None]], moment_s: float = 0.05) -> None:
    """Run it on a clock that jumps as soon as nothing happens for a moment."""
    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=moment_s))


@asynccontextmanager
async def serving(
    app: ASGIApp, max_open: int = 8
) -> AsyncIterator[Callable[[], Awaitable[Client]]]:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(await trio.open_tcp_stream(*sock.getsockname())))
        return clients[-1]

    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(Connections(app, max_open).serve, listener)
        yield connect
        for client in clients:
            await trio.aclose_forcefully(client.stream)
        nursery.cancel_scope.cancel()


class Client:
    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def read(self, size: int = MIB) -> bytes:
        try:
            return await self.stream.receive_some(size)
        except trio.BrokenResourceError:
            return b""

    async def closed_after(self) -> float:
        """Seconds until the other side closes, from now."""
        begun_s = trio.current_time()
        while await self.read():
            pass
        await self.stream.aclose()
        return trio.current_time() - begun_s


@pytest.mark.fault("F13")
@pytest.mark.parametrize(
    ("data", "limit_s"),
    [
        (b"", 10),
        (b"GET / HT", 10),
        (HEAD[:-2], 10),
        (HEAD, 10),  # answered, and then nothing
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 15),
    ],
)
def test_a_head_that_does_not_come_is_not_waited_for(data: bytes, limit_s: float) -> None:
    async def main() -> None:
        async with serving(hello) as connect:
            client = await connect()
            if data:
                await client.stream.send_all(data)
            assert limit_s - 1 < await client.closed_after() < limit_s + 1

    in_time(main)


@pytest.mark.fault("F15")
def test_a_head_of_a_byte_a_second_is_not_waited_for() -> None:
    async def main() -> None:
        async with serving(hello) as connect, trio.open_nursery() as nursery:
            client = await connect()

            async def drip() -> None:
                for byte in HEAD:
                    await client.stream.send_all(bytes([byte]))
                    await trio.sleep(1)

            nursery.start_soon(drip)
            try:
                assert await client.closed_after() < 11
            finally:
                nursery.cancel_scope.cancel()

    in_time(main)


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/9.9"])
def test_other_versions_are_not_spoken(version: bytes) -> None:
    async def main() -> None:
        async with serving(hello) as connect:
            client = await connect()
            await client.stream.send_all(HEAD.replace(b"HTTP/1.1", version))
            assert await client.closed_after() < 1

    in_time(main)


def test_the_oldest_that_waits_gives_way_and_none_that_is_served() -> None:
    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/stuck":
            await trio.sleep(1000)
        await hello(scope, receive, send)

    async def main() -> None:
        async with serving(stuck, max_open=3) as connect:
            served = await connect()
            await served.stream.send_all(HEAD.replace(b"/ ", b"/stuck ", 1))
            await trio.sleep(0.1)
            first, second = await connect(), await connect()
            await trio.sleep(0.1)
            third = await connect()
            assert await first.closed_after() < 1
            await third.stream.send_all(HEAD)
            assert (await third.read()).startswith(b"HTTP/1.1 200")
            await second.stream.send_all(HEAD)
            assert (await second.read()).startswith(b"HTTP/1.1 200")
            assert (await served.read()).startswith(b"HTTP/1.1 200")

    in_time(main)


def test_an_answered_one_that_waits_gives_way() -> None:
    async def main() -> None:
        async with serving(hello, max_open=2) as connect:
            first, second = await connect(), await connect()
            for client in (first, second):
                await client.stream.send_all(HEAD)
                assert (await client.read()).startswith(b"HTTP/1.1 200")
            await trio.sleep(0.1)
            await connect()
            assert await first.closed_after() < 1

    in_time(main)


def test_where_all_are_served_a_new_one_is_closed() -> None:
    async def stuck(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await trio.sleep_forever()

    async def main() -> None:
        async with serving(stuck, max_open=2) as connect:
            for _ in range(2):
                await (await connect()).stream.send_all(HEAD)
            await trio.sleep(0.1)
            assert await (await connect()).closed_after() < 1

    in_time(main)


@pytest.mark.fault("F36")
def test_an_exception_ends_its_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/":
            raise RuntimeError("xylophone")
        await hello(scope, receive, send)

    async def main() -> None:
        async with serving(broken) as connect:
            one, other = await connect(), await connect()
            await one.stream.send_all(HEAD.replace(b"/ ", b"/x ", 1))
            assert await one.closed_after() < 1
            await other.stream.send_all(HEAD)
            assert (await other.read()).startswith(b"HTTP/1.1 200")

    in_time(main)
    assert "xylophone" not in caplog.text


# -- bodies ----------------------------------------------------------------------------------


def body_of(*pieces: bytes, pause_s: float = 0.0, ends: bool = True) -> Receive:
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    messages.append({"type": "http.request" if ends else "http.disconnect", "more_body": False})

    async def receive() -> Message:
        await trio.sleep(pause_s)
        return messages.pop(0)

    return receive


@pytest.mark.parametrize(
    ("receive", "is_kept", "outcome"),
    [
        (body_of(b"ab", b"c"), True, b"abc"),
        (body_of(), True, b""),
        (body_of(*[b"a" * MIB] * 4), True, b"a" * 4 * MIB),
        (body_of(*[b"a" * MIB] * 4, b"a"), True, "body_too_large"),
        (body_of(*[b"a" * MIB] * 64), True, "body_too_large"),
        (body_of(*[b"a" * MIB] * 65), True, None),
        (body_of(*[b"a" * MIB] * 60), False, b""),
        (body_of(*[b"a" * MIB] * 65), False, None),
        (body_of(b"ab", ends=False), True, None),
        (body_of(*[b"a"] * 28, pause_s=1.0), True, b"a" * 28),
        (body_of(*[b"a"] * 31, pause_s=1.0), True, "body_too_slow"),
        (body_of(*[b"a"] * 3, pause_s=1.0), False, "body_too_slow"),
    ],
)
def test_bodies_are_bounded(receive: Receive, is_kept: bool, outcome: bytes | str | None) -> None:
    async def main() -> None:
        body = await read_body(receive, is_kept=is_kept)
        assert (body.code if isinstance(body, Refusal) else body) == outcome

    in_time(main, 0.0)


@pytest.mark.fault("F11")
def test_no_more_of_a_body_is_kept_than_is_taken() -> None:
    async def main() -> None:
        receive = body_of(*[b"a" * MIB] * 60)
        tracemalloc.start()
        try:
            await read_body(receive, is_kept=True)
            assert tracemalloc.get_traced_memory()[1] < 10 * MIB
        finally:
            tracemalloc.stop()

    in_time(main, 0.0)


# -- the listening socket --------------------------------------------------------------------


@pytest.mark.fault("F12")
def test_a_client_that_does_not_read_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel, which the listening socket tells how long to wait: here for less time."""
    monkeypatch.setattr(door_process, "_UNSENT_MS", 300)
    door = door_process.open_door(HttpConfig("127.0.0.1:0", require_key=False), Paths(tmp_path))
    assert door is not None

    async def endless(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not given_up.is_set():
            await send({"type": "http.response.body", "body": b"a" * MIB, "more_body": True})

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(endless, scope, receive, send)
            while (await receive())["type"] != "http.disconnect":
                pass
            given_up.set()

    async def main() -> None:
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(own))
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(Connections(watched, 8).serve, listener)
            stream = await trio.open_tcp_stream(*own.getsockname())
            await stream.send_all(HEAD)
            with trio.fail_after(20):
                await given_up.wait()
            nursery.cancel_scope.cancel()
            await stream.aclose()

    given_up = trio.Event()
    own = socket.socket(fileno=socket.dup(door.listen_fd))
    own.setblocking(False)
    door.close()
    trio.run(main)


def test_an_ipv6_address_is_written_in_brackets(tmp_path: Path) -> None:
    door = door_process.open_door(HttpConfig("[::1]:0", require_key=False), Paths(tmp_path))
    assert door is not None
    with socket.socket(fileno=socket.dup(door.listen_fd)) as sock:
        assert door.address == f"http://[::1]:{sock.getsockname()[1]}"
    door.close()
    assert not list(tmp_path.iterdir())
