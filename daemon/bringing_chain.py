"""The windows of one chain, from peers into L1: written first that they are peers', then taken."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from daemon.adopting import Adopting
from daemon.binding import Binding
from daemon.memory import Memory
from daemon.telling import Tell
from daemon.transfer import Carries, Transfer
from glia.errors import ArenaExhausted, GliaError, MalformedParticle, PeerLost
from glia.graph.ids import PrefixKey, WindowId
from glia.graph.neuron import NeuronId
from glia.graph.window import WindowRecord
from glia.store.foreign import Foreign
from p2p.getter import Close
from p2p.source import Provides

_log = logging.getLogger("gliad.fetch")


@dataclass(frozen=True)
class Coming:
    """What is to come.

    Attributes:
        records: in order; they follow `base`, or genesis where that is None.
        key: the prefix key of the window before them.
        seen: `hidden.num_changes` before the base was looked up.
        signers: who attests them; of what another Body of this node's Soul gave, nobody.
    """

    binding: Binding
    records: Sequence[WindowRecord]
    base: WindowRecord | None
    key: PrefixKey
    seen: int
    signers: Mapping[WindowId, NeuronId]
    providers: Sequence[Provides]


async def bring(
    way: Carries, foreign: Foreign, memory: Memory, coming: Coming, tell: Tell
) -> list[Close]:
    """Have them in L1, dirty. Whole windows that came stay, whatever else fails.

    Raises: ArenaExhausted, MalformedParticle, PeerLost, StoreError, StoreFull.
    """
    records, binding = coming.records, coming.binding
    names = [record.window_id for record in records]
    expect = partial(foreign.expect, names, coming.signers)
    sink = memory.adopter.after(binding, coming.base, coming.key, coming.seen, expect)
    held = await memory.stored(records)
    try:
        async with trio.open_nursery() as nursery:
            transfer = Transfer(
                way, binding, records, coming.base, coming.providers, nursery, held=held
            )
            size = binding.profile.block_size
            why = await transfer.run(_Telling(sink, tell, size, len(names)))
    finally:
        if sink.is_expected:
            came = [record.window_id for record in sink.records]
            with trio.CancelScope(shield=True):
                await _settle(partial(foreign.settle, names, came))
    if transfer.failure is not None:
        raise transfer.failure
    if why:
        raise _broken_off(why, len(sink.records), len(names))
    return transfer.closed


@dataclass(frozen=True, slots=True)
class _Telling:
    """A sink that says how far it is."""

    sink: Adopting
    tell: Tell
    size: int
    num: int

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        """See Adopting."""
        await self.sink.take(record, particles)
        self.tell("fetching", self.size * len(self.sink.records), self.size * self.num)


async def _settle(settle: Callable[[], None]) -> None:
    try:
        await trio.to_thread.run_sync(settle)
    except GliaError as error:
        _log.warning("of windows that did not come it stays written that they might: %s", error)


def _broken_off(why: str, num: int, of: int) -> GliaError:
    """Args: why: as Transfer.run says it."""
    what = f"{num:,} of {of:,} windows came, and stay"
    if why == "room":
        return ArenaExhausted(f"{what}: L1 has no room", hint="raise l1.size in glia.toml")
    if why == "broken":
        return MalformedParticle(f"{what}: the chain is not what its records say")
    return PeerLost(f"{what}: whoever has the rest is gone", hint="ask again: it goes on there")
