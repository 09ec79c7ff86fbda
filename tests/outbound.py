"""All that leaves one host of the simulated internet, and a search for many sentinels in it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from p2p.testing.host import SimHost
from p2p.testing.stream import SimStream

SENTINEL_BYTES = 8


class Outbound:
    """The recording of one host, from now on.

    Attributes:
        bytes: what its streams sent, what it told the directory and the topics, in order.
        kinds: how much there is of each kind of thing that it did.
    """

    def __init__(self, host: SimHost, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = bytearray()
        self.kinds: dict[str, int] = {}
        send_all = SimStream.send_all

        async def sent(stream: SimStream, data: bytes | bytearray | memoryview) -> None:
            if getattr(stream._note, "__self__", None) is host:
                self._keep("sent", bytes(data))
            await send_all(stream, data)

        monkeypatch.setattr(SimStream, "send_all", sent)
        for port, names in (
            (host.directory, ("provide", "providers", "put", "get")),
            (host.gossip, ("publish", "join")),
        ):
            for name in names:
                self._watch(port, name, monkeypatch)

    def _watch(self, port: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        call = getattr(port, name)

        def watched(*args: Any) -> Any:
            parts = [a.encode() if isinstance(a, str) else a for a in args]
            self._keep(name, b"".join(p for p in parts if isinstance(p, bytes)))
            return call(*args)

        monkeypatch.setattr(port, name, watched)

    def _keep(self, kind: str, data: bytes) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.bytes += data


def found_in(data: bytes | bytearray, sentinels: Collection[bytes]) -> set[bytes]:
    """Those of 8 bytes each that stand somewhere in it, at any offset."""
    view = bytes(data)
    last = len(view) - SENTINEL_BYTES + 1
    return {view[at : at + SENTINEL_BYTES] for at in range(last)} & set(sentinels)
