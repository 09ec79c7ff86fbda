"""L2 is told which chains were used, wherever their windows were read from.

A chain that is answered from L0 or L1 again and again must not be the one that L2 finds
unused. Nobody waits for this.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

import trio

from daemon.memory import Memory
from glia.errors import GliaError
from glia.graph.ids import WindowId

_MAX_WAITING = 1024
_log = logging.getLogger("gliad.uses")


class Uses:
    """Chains that wait to be told of; beyond a bound the oldest is not told of."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._tips: OrderedDict[WindowId, None] = OrderedDict()
        self._added = trio.Event()

    def add(self, tip: WindowId) -> None:
        """The chain that ends in `tip` was used."""
        self._tips[tip] = None
        if len(self._tips) > _MAX_WAITING:
            self._tips.popitem(last=False)
        self._added.set()

    async def run(self) -> None:
        """Tell the store, for ever."""
        while True:
            while not self._tips:
                self._added = trio.Event()
                await self._added.wait()
            tip, _ = self._tips.popitem(last=False)
            try:
                chain = await self._memory.chain(tip)
                names = [record.window_id for record in chain]
                await trio.to_thread.run_sync(self._memory.store.touch, names)
            except GliaError as error:  # then it is not there to be kept
                _log.info("a chain's use is not told: %s", error)
            except Exception:  # an order of use is nothing that a node should end for
                _log.exception("a chain's use could not be told")
