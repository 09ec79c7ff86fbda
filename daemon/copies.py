"""How many other peers have what is published, and what follows from that for L2.

L2 evicts what was not used for longest: a chain of which there are too few copies counts as
used. Providers are hints, so nothing is evicted, nor kept for ever, on their word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import trio

from glia.errors import GliaError
from glia.graph.ids import WindowId
from p2p.host import Directory, Found
from p2p.provider import RunBlocking

_LOOK_S = 20.0  # of what one boundary may take


class Network(Protocol):
    """What it needs of daemon.peering.Peering."""

    counters: Counter[str]

    @property
    def directory(self) -> Directory: ...


class Copies:
    """The one that counts them.

    Args:
        replicas: so many others are to have a chain; 0: nobody looks.
        keep: counts a chain as used, by its last window; called as `call` does.
    """

    def __init__(
        self,
        network: Network,
        replicas: int,
        keep: Callable[[WindowId], None],
        call: RunBlocking,
    ) -> None:
        self._network, self._replicas = network, replicas
        self._keep, self._call = keep, call
        self._scarce: set[WindowId] = set()

    async def count(self, tip: WindowId) -> None:
        """Ask the directory who has a chain. Raises: StoreBroken."""
        if not self._replicas:
            return
        found: Sequence[Found] = ()
        with suppress(GliaError), trio.move_on_after(_LOOK_S):
            found = await self._network.directory.providers(tip, self._replicas)
        if len(found) >= self._replicas:
            self.leave(tip)
            return
        self._scarce.add(tip)
        self._tell()
        await self._call(partial(self._keep, tip))

    def leave(self, tip: WindowId) -> None:
        """It is no chain's last window any more, or not here."""
        self._scarce.discard(tip)
        self._tell()

    def _tell(self) -> None:
        self._network.counters["chains_scarce"] = len(self._scarce)
