"""Windows that are false, that a liar attests, or that follow such: used no more, in any tier.

    hide      at once: nobody finds them, neither by tokens nor by name
    write     durably, with whose fault it is; what a start reads
    take back they are shown to peers no longer, as soon as can be
    tell      engines drop what they still have

Their bytes stay on disk until L2 needs the room: they say what was claimed. What is wanted of
their tokens is computed again; where that gives the same window it is this node's own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import trio

from daemon.memory import Memory
from glia.errors import GliaError
from glia.graph.ids import WindowId
from glia.graph.neuron import NeuronId
from glia.store.foreign import Foreign, Looked
from glia.store.published import Published

_EARLY = (Looked.EXPECTED, Looked.CAME)  # nobody has looked at it
_log = logging.getLogger("gliad.auditing")


class Condemning:
    """The one that condemns.

    Args:
        still: held by whoever forgets windows or publishes them.
        take_back: shows groups no more what was condemned; in a worker thread.
    """

    def __init__(
        self,
        memory: Memory,
        published: Published,
        still: trio.Lock,
        counters: Counter[str],
        take_back: Callable[[Sequence[WindowId]], None] = lambda _: None,
    ) -> None:
        self._memory, self._published, self._still = memory, published, still
        self._take_back = take_back
        self._foreign: Foreign = published.foreign
        self._counters = counters
        self._shown: list[WindowId] = []
        self._changing = trio.Lock()  # or what proves false meanwhile would be taken again

    @staticmethod
    def load(memory: Memory, published: Published) -> None:
        """What was condemned or put aside, and what nobody has looked at, as it was. Blocking.

        Raises: StoreBroken.
        """
        origins = published.foreign.all().items()
        memory.hidden.condemn([n for n, each in origins if each.looked is Looked.CONDEMNED])
        memory.hidden.condemn(published.foreign.aside())
        memory.arrivals.unchecked.update(n for n, each in origins if each.looked in _EARLY)

    async def attested_by(self, neuron: NeuronId) -> list[WindowId]:
        """Every window that came with a neuron's word for it. Raises: StoreBroken."""
        origins = await trio.to_thread.run_sync(self._foreign.all)
        return [name for name, each in origins.items() if each.signer == neuron]

    async def condemn(self, window_ids: Collection[WindowId], liar: NeuronId | None) -> None:
        """Use these, and what follows them, no more. Idempotent.

        Args: liar: whose fault that is, if it is proven.
        Raises: StoreFull, StoreBroken: then they are not used until gliad ends.
        """
        async with self._changing:
            await self._hide(window_ids, partial(self._foreign.condemn, liar=liar))

    async def put_aside(self, neuron: NeuronId) -> None:
        """Use nothing that a neuron attests, nor what follows it, until `take_again`.

        Raises: as `condemn`.
        """
        async with self._changing:
            names = await self.attested_by(neuron)
            await self._hide(names, partial(self._foreign.put_aside, neuron=neuron))

    async def take_again(self, neuron: NeuronId) -> None:
        """What was put aside for a neuron's sake alone is used as before.

        Raises: StoreFull, StoreBroken: then it is not.
        """
        async with self._changing:
            origins = await trio.to_thread.run_sync(self._foreign.take_again, neuron)
            self._memory.arrivals.unchecked.update(
                name for name, each in origins.items() if each is not None and each.looked in _EARLY
            )
            self._memory.hidden.acquit(origins)

    async def _hide(
        self, window_ids: Collection[WindowId], write: Callable[[Collection[WindowId]], None]
    ) -> None:
        """These, and what follows them, in every tier."""
        hidden = self._memory.hidden
        num_before = len(hidden.condemned)
        hidden.condemn(window_ids)
        names, found = list(dict.fromkeys(window_ids)), list[WindowId]()
        while len(found) < len(names):  # meanwhile one may come behind one that is not hidden yet
            found, names = names, await self._with_what_follows(names)
            hidden.condemn(names)
        self._memory.arrivals.checked(names)
        self._memory.records.forget(names)
        self._counters["windows_condemned"] += len(hidden.condemned) - num_before
        self._shown += names
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(write, names)

    async def take_back(self) -> None:
        """Show peers and members no more what was condemned. Not while an engine waits for an
        answer: who holds `still` may wait for that engine. Never raises."""
        names, self._shown = self._shown, []
        try:
            async with self._still:
                await trio.to_thread.run_sync(self._published.take_back, names)
                await trio.to_thread.run_sync(self._take_back, names)
        except GliaError as error:  # whoever asks is told that the blocks are absent
            _log.warning("what is condemned is still shown to peers: %s", error)

    async def acquit(self, window_ids: Sequence[WindowId]) -> None:
        """This node made the same since: they are its own. Never raises."""
        try:
            await trio.to_thread.run_sync(self._foreign.acquit, window_ids)
        except GliaError as error:  # at the next start they are computed once more
            _log.warning("what was computed here is taken for a peer's: %s", error)

    async def _with_what_follows(self, window_ids: Iterable[WindowId]) -> list[WindowId]:
        table = self._memory.table
        in_l1: dict[WindowId, list[WindowId]] = {}
        for name in table.names():
            record = table.record(name)
            if record is not None:
                in_l1.setdefault(record.before, []).append(name)
        return await trio.to_thread.run_sync(self._following, list(window_ids), in_l1)

    def _following(
        self, window_ids: Sequence[WindowId], in_l1: dict[WindowId, list[WindowId]]
    ) -> list[WindowId]:
        """Blocking. Raises: StoreBroken."""
        found = dict.fromkeys(window_ids)
        left = list(window_ids)
        while left:
            name = left.pop()
            after = (
                *in_l1.get(name, ()),
                *self._memory.store.children(name),
                *self._published.next_windows(name),
            )
            left += [each for each in after if each not in found]
            found.update(dict.fromkeys(after))
        return list(found)
