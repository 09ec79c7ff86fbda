"""All that leaves hosts of the simulated internet, and a search for many sentinels in it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from p2p.host import PeerId
from p2p.testing.host import SimHost
from p2p.testing.stream import SimStream

SENTINEL_BYTES = 8


class Outbound:
    """The recording of some hosts, from `tap` on.

    Attributes:
        bytes: what their streams sent, what they told the directory and the topics, in order.
        kinds: how much there is of each kind of thing that they did.
    """

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.kinds: dict[str, int] = {}

    def tap(self, host: SimHost) -> None:
        """Record a host, for as long as it lives."""

        def stream(*args: Any) -> SimStream:
            made: SimStream = SimHost._stream(host, *args)
            self._watch_stream(made)
            return made

        def take(peer: PeerId, protocol: str, made: SimStream) -> None:
            self._watch_stream(made)
            SimHost._take(host, peer, protocol, made)

        host._stream, host._take = stream, take  # type: ignore[method-assign]
        for port, names in (
            (host.directory, ("provide", "providers", "put", "get")),
            (host.gossip, ("publish", "join")),
        ):
            for name in names:
                self._watch(port, name)

    def _watch_stream(self, stream: SimStream) -> None:
        send_all = stream.send_all

        async def sent(data: bytes | bytearray | memoryview) -> None:
            self._keep("sent", bytes(data))
            await send_all(data)

        stream.send_all = sent  # type: ignore[method-assign]

    def _watch(self, port: Any, name: str) -> None:
        call = getattr(port, name)

        def watched(*args: Any) -> Any:
            parts = [a.encode() if isinstance(a, str) else a for a in args]
            self._keep(name, b"".join(p for p in parts if isinstance(p, bytes)))
            return call(*args)

        setattr(port, name, watched)

    def _keep(self, kind: str, data: bytes) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.bytes += data


def found_in(data: bytes | bytearray, sentinels: Collection[bytes]) -> set[bytes]:
    """Those of 8 bytes each that stand somewhere in it, at any offset."""
    view = bytes(data)
    last = len(view) - SENTINEL_BYTES + 1
    return {view[at : at + SENTINEL_BYTES] for at in range(last)} & set(sentinels)
