"""Hosts of each kind for tests of the network port, and what is done with their streams."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import trio

from glia.errors import PeerLost
from p2p.host import Address, Directory, Gossip, Host, Limits, Stream
from p2p.libp2p.network import Network
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate

LIMITS = Limits(max_streams_per_peer=4, max_unread_bytes=1024 * 1024)


@dataclass(frozen=True)
class Node:
    """A host with its other ports. `end` ends it as if its process were killed."""

    host: Host
    directory: Directory
    gossip: Gossip
    end: Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Kind:
    """An implementation. `run(num, main)` calls `main(*nodes)` with that many new nodes.

    Their limits are LIMITS, and their directory's validator takes what starts with b"valid".
    """

    name: str
    run: Callable[[int, Callable[..., Awaitable[None]]], None]


def is_valid(key: bytes, value: bytes) -> bool:
    """The validator of the directory in these tests."""
    return value.startswith(b"valid")


def run_simulated(num: int, main: Callable[..., Awaitable[None]]) -> None:
    """Nodes on an internet in a dict."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery)
            await main(*[_simulated(net, f"node {number}") for number in range(num)])
            nursery.cancel_scope.cancel()

    simulate(run)


def _simulated(net: Internet, name: str) -> Node:
    host = net.host(name, limits=LIMITS, validate=is_valid)

    async def end() -> None:
        net.kill(name)

    return Node(host, host.directory, host.gossip, end)


def new_network(limits: Limits = LIMITS) -> Network:
    """A libp2p node on loopback, with a key of its own."""
    listen = [Address("/ip4/127.0.0.1/tcp/0")]
    seed = secrets.token_bytes(32)
    return Network(seed, listen, limits=limits, validate=is_valid, agent="gliad/test")


def run_libp2p(num: int, main: Callable[..., Awaitable[None]]) -> None:
    """Nodes on loopback."""

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await main(*[await start_libp2p(nursery, new_network()) for _ in range(num)])
            nursery.cancel_scope.cancel()

    trio.run(run)


async def start_libp2p(nursery: trio.Nursery, network: Network) -> Node:
    """Run a node until the nursery ends, or its `end` is called."""
    scope, ended = trio.CancelScope(), trio.Event()

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        with scope:
            await network.run(task_status=task_status)
        ended.set()

    async def end() -> None:
        scope.cancel()
        await ended.wait()

    await nursery.start(run)
    return Node(network.host, network.directory, network.gossip, end)


KINDS = [Kind("simulated", run_simulated), Kind("libp2p", run_libp2p)]


async def read_exactly(stream: Stream, num_bytes: int) -> bytes:
    """Raises: PeerLost where it ends before."""
    data = b""
    while len(data) < num_bytes:
        part = await stream.receive_some(num_bytes - len(data))
        if not part:
            raise PeerLost("the stream ended")
        data += part
    return data


async def read_all(stream: Stream) -> bytes:
    """Up to the end that the other side makes."""
    data = b""
    while part := await stream.receive_some(65_536):
        data += part
    return data


async def until(holds: Callable[[], Any], within_s: float = 60) -> None:
    """Wait for what comes without being awaited."""
    with trio.fail_after(within_s):
        while not holds():
            await trio.sleep(0.01)
