"""What is changed in py-libp2p itself, once a process, where no subclass reaches.

`p2p/spec/guards.md` lists these and the guards that are subclasses, with their tests.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import libp2p
import trio
from libp2p.io.abc import Reader
from libp2p.io.exceptions import IncompleteReadError
from libp2p.tools.anyio_service.trio_manager import TrioManager
from libp2p.utils.varint import read_varint_prefixed_bytes_limited

from glia.errors import NetworkError
from p2p.libp2p import caps
from p2p.libp2p.connection import GuardedConnection
from p2p.libp2p.yamux import GuardedStream

_RETRY_S = 1.0
_KAD = ("common", "kad_dht", "peer_routing", "provider_store", "routing_table", "value_store")
_READERS = (
    "libp2p.io.utils",
    "libp2p.io.msgio",
    "libp2p.stream_muxer.yamux.yamux",
    "libp2p.utils.varint",
)
_run_task = TrioManager.run_task
_log = logging.getLogger("gliad.p2p.libp2p")


def apply(agent: str) -> None:
    """Change the library; again changes nothing but the agent that identify tells.

    Raises: NetworkError where it is not the version that the guards are written for.
    """
    if libp2p.__version__ != caps.VERSION:
        raise NetworkError(
            f"libp2p is {libp2p.__version__}, and the guards are for {caps.VERSION}",
            hint=f"pip install libp2p=={caps.VERSION}, or start with --offline",
        )
    logging.getLogger("libp2p").setLevel(logging.CRITICAL)  # it logs what peers do, each time
    for name in _KAD:
        _change_kad(importlib.import_module(f"libp2p.kad_dht.{name}"))
    for name in _READERS:
        importlib.import_module(name).read_exactly = read_exactly  # type: ignore[attr-defined]
    varint = importlib.import_module("libp2p.utils.varint")
    varint.read_varint_prefixed_bytes = read_prefixed  # type: ignore[attr-defined]
    swarm = importlib.import_module("libp2p.network.swarm")
    swarm._HAPPY_EYEBALLS_DELAY = 0.0  # type: ignore[attr-defined]
    yamux = importlib.import_module("libp2p.stream_muxer.yamux.yamux")
    yamux.MAX_WINDOW_SIZE = caps.MAX_WINDOW_BYTES  # type: ignore[attr-defined]
    yamux.YamuxStream = GuardedStream  # type: ignore[attr-defined]
    connection = importlib.import_module("libp2p.network.connection.swarm_connection")
    connection.SwarmConn = GuardedConnection  # type: ignore[attr-defined]
    identify = importlib.import_module("libp2p.identity.identify.identify")
    identify.AGENT_VERSION = agent  # type: ignore[attr-defined]
    TrioManager.run_task = run_task  # type: ignore[assignment,method-assign]


def _change_kad(module: ModuleType) -> None:
    """The DHT's constants are imported by value: each module has its own."""
    changes = {
        "PROTOCOL_ID": caps.KAD_PROTOCOL,
        "MAX_DHT_MESSAGE_SIZE": caps.MAX_KAD_MESSAGE_BYTES,
        "MAX_RECORD_SIZE": caps.MAX_KAD_RECORD_BYTES,
    }
    for name, value in changes.items():
        if hasattr(module, name):
            setattr(module, name, value)


async def read_exactly(reader: Reader, n: int, retry_count: int = 0) -> bytes:
    """`n` bytes, in however many pieces they come: the library gives up after 101.

    Raises: IncompleteReadError.
    """
    data = bytearray()
    while len(data) < n:
        part = await reader.read(n - len(data))
        if not part:
            raise IncompleteReadError(
                f"the stream ended after {len(data)} of {n} bytes",
                expected_bytes=n,
                received_bytes=len(data),
            )
        data += part
    return bytes(data)


async def read_prefixed(reader: Reader) -> bytes:
    """A message of multistream-select, whose length the library does not bound.

    Raises: MessageTooLarge, IncompleteReadError, ParseError.
    """
    return await read_varint_prefixed_bytes_limited(reader, caps.MAX_NEGOTIATION_BYTES)


def run_task(
    manager: TrioManager,
    async_fn: Callable[..., Awaitable[Any]],
    *args: Any,
    daemon: bool = False,
    name: str | None = None,
    _internal: bool = False,
) -> None:
    """`TrioManager.run_task`, in which a task that raises does not end all others."""

    async def contained(*args: Any) -> None:
        while True:
            try:
                await async_fn(*args)
            except Exception:
                _log.exception("a task of libp2p failed: %s", async_fn)
                if not daemon:
                    return
                await trio.sleep(_RETRY_S)
            else:
                return

    run = async_fn if _internal else contained
    _run_task(manager, run, *args, daemon=daemon, name=name, _internal=_internal)
