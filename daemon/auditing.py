"""What engines find of windows that came from peers, and what follows from it.

examined   each one is looked at before its first use; then it is drawn whether it is
           computed again (p2p/auditing.py)
run        what is drawn and not waited for is computed again while its answer begins
fell       what does not hold is used no more; whose it is, if that is proven, is believed
           in nothing, and all that it attested goes (daemon/condemning.py)
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from daemon.binding import Binding
from daemon.condemning import Condemning
from daemon.conversations import Conversations
from daemon.engines import Engines
from daemon.erasing import erase_in_engines
from daemon.link import EngineLink
from daemon.memory import Memory
from daemon.peering import Peering
from glia.errors import GliaError
from glia.graph.equivocation import Equivocation
from glia.graph.ids import WindowId, short
from glia.graph.link import Link
from glia.graph.neuron import NeuronId
from glia.graph.numerics import CANONICAL
from glia.graph.profile import KvScheme
from glia.graph.window import WindowRecord
from glia.local.messages import AuditedWindow
from glia.local.values import FindingValue
from glia.store.foreign import Origin
from p2p.auditing import drawn, is_waited_for
from p2p.neurons import Word

_SYSTEM = random.SystemRandom()
_log = logging.getLogger("gliad.auditing")


@dataclass(frozen=True, slots=True)
class Audit:
    """One window, computed again. `signer`: who attests it, if somebody does."""

    record: WindowRecord
    signer: NeuronId | None
    reply: AuditedWindow


class Auditing:
    """The one that audits.

    Args:
        conversations: answers under way that use what proves false are marked.
        draw: from [0, 1), of the system's own source.
    """

    def __init__(
        self,
        memory: Memory,
        peering: Peering,
        engines: Engines,
        condemning: Condemning,
        counters: Counter[str],
        conversations: Conversations,
        draw: Callable[[], float] = _SYSTEM.random,
    ) -> None:
        self._memory, self._peering, self._engines = memory, peering, engines
        self._condemning, self._counters = condemning, counters
        self._conversations, self._draw = conversations, draw
        self._foreign = peering.published.foreign
        self._due: deque[tuple[Binding, WindowId]] = deque()
        self._acquitted: list[WindowId] = []
        self._is_dirty = False
        self._wanted = trio.Event()
        memory.examined = self.examined
        peering.overheard = self.overheard
        memory.sealer.on_acquit = self._acquit

    async def run(self) -> None:
        """Compute again what is drawn, for ever."""
        while True:
            self._wanted = trio.Event()
            if self._acquitted:
                names, self._acquitted = self._acquitted, []
                await self._condemning.acquit(names)
            elif self._is_dirty:
                self._is_dirty = False
                await self._condemning.take_back()
                await self._tell_engines()
            elif self._due:
                await self._audit_due(*self._due.popleft())
            else:
                await self._wanted.wait()

    async def examined(self, binding: Binding, found: Sequence[FindingValue]) -> Sequence[WindowId]:
        """Take in what an engine found. Returns: windows to compute again before they are used.

        Raises: StoreBroken, StoreFull.
        """
        names = [WindowId(each.window) for each in found]
        origins = await trio.to_thread.run_sync(self._foreign.origins, names)
        passed: list[WindowId] = []
        audited: list[WindowId] = []
        for name, each in zip(names, found, strict=True):
            signer = origins[name].signer if name in origins else None
            if each.audit:
                self._count(signer, each)
            if each.verdict != "clean":
                self._refused(signer, each)
                await self._fell(name, signer, each)
            elif name in origins:
                (audited if each.audit else passed).append(name)
        if audited:
            await self._checked(audited)
        return await self._passed(binding, passed, origins) if passed else ()

    async def audit(self, link: EngineLink, record: WindowRecord) -> Audit:
        """Have an engine compute a window again, and let follow what does.

        Raises: NotFound (its chain is not whole here), MalformedParticle, EngineDied,
            QuotaExceeded, StoreBroken, StoreFull.
        """
        name = record.window_id
        chain = [each.window_id for each in await self._memory.chain(name)]
        reply = await link.audit(
            chain, record.tokens, is_canonical=record.numerics_class == CANONICAL
        )
        origins = await trio.to_thread.run_sync(self._foreign.origins, [name])
        signer = origins[name].signer if name in origins else None
        self._count(signer, reply.finding)
        if reply.finding.verdict != "clean":
            await self._fell(name, signer, reply.finding)
        return Audit(record, signer, reply)

    async def overheard(
        self, scheme: KvScheme, chain: Sequence[WindowRecord], links: Sequence[Link]
    ) -> None:
        """Who signed two canonical windows that contradict each other computed one otherwise.

        In f32 two processors may round a number to either side: there it is kept, and no more
        (glia/spec/13-numerics.md). Never raises.
        """
        for link in links:
            span = chain[link.claim.num_before : link.claim.num_windows]
            if span[-1].numerics_class != CANONICAL or span[-1].group is not None:
                continue
            try:
                take = partial(self._peering.published.promises.take, link, span)
                found = await trio.to_thread.run_sync(take)
                await self._contradicted(scheme, found)
            except GliaError as error:
                _log.warning("what neurons signed is not kept: %s", error)

    async def _contradicted(self, scheme: KvScheme, found: Sequence[Equivocation]) -> None:
        self._counters["equivocations"] += len(found)
        for each in found:
            if scheme is KvScheme.F32 or each.signer == self._peering.signer.neuron:
                _log.warning("neuron %s signed two windows in place of one", each.signer.hex())
                continue
            why = (
                f"canonical windows {short(each.one.window.window_id)} and "
                f"{short(each.other.window.window_id)} of the same tokens"
            )
            await self._caught(each.signer, why, [])
            await self._peering.save_neurons()

    async def trust(self, neuron: NeuronId, word: Word) -> None:
        """Do as the user says. Raises: StoreBroken, StoreFull."""
        self._peering.neurons.say(neuron, word)
        await self._peering.save_neurons()
        if word != "never":
            await self._condemning.take_again(neuron)
        else:
            await self._condemning.put_aside(neuron)
            self._is_dirty = True
            self._wanted.set()

    def link_for(self, record: WindowRecord) -> EngineLink | None:
        """An engine that runs a window's model and profile."""
        links = self._engines.links()
        return next((link for link in links if link.binding.fits(record)), None)

    # -- windows that passed ------------------------------------------------------------------

    async def _passed(
        self, binding: Binding, names: Sequence[WindowId], origins: dict[WindowId, Origin]
    ) -> list[WindowId]:
        self._counters["windows_checked"] += len(names)
        by_signer: dict[NeuronId | None, list[WindowId]] = {}
        for name in names:
            by_signer.setdefault(origins[name].signer, []).append(name)
        waited: list[WindowId] = []
        for signer, theirs in by_signer.items():
            chosen, is_waited = self._drawn(signer, theirs)
            if is_waited:
                waited += chosen
            else:
                self._due.extend((binding, name) for name in chosen)
        if self._due:
            self._wanted.set()
        later = set(waited)
        await self._checked([name for name in names if name not in later])
        return waited

    async def _checked(self, names: Sequence[WindowId]) -> None:
        """They may be used. What an engine is to compute again first may not until it has: where
        it cannot, it is looked at anew."""
        self._memory.arrivals.checked(names)
        try:
            await trio.to_thread.run_sync(self._foreign.checked, names)
        except GliaError as error:  # after a start they are looked at once more
            _log.warning("windows that were looked at: %s", error)

    def _drawn(
        self, signer: NeuronId | None, names: Sequence[WindowId]
    ) -> tuple[list[WindowId], bool]:
        """Which are computed again, and whether before they are used."""
        if signer is None:
            trust, num_clean, is_lowered = self._peering.believing.trust_in(None), 0, False
        else:
            neurons = self._peering.neurons
            neurons.checked(signer, len(names), 0)
            entry = neurons.entry(signer)
            trust = self._peering.believing.trust_in(signer)
            num_clean, is_lowered = entry.num_clean, entry.is_lowered
        flags = drawn(trust, num_clean, len(names), self._draw, is_lowered=is_lowered)
        chosen = [name for name, flag in zip(names, flags, strict=True) if flag]
        return chosen, is_waited_for(trust, num_clean)

    async def _audit_due(self, binding: Binding, name: WindowId) -> None:
        record = await trio.to_thread.run_sync(self._memory.records.get_now, name)
        link = self.link_for(record) if record is not None else None
        if record is None or link is None:
            self._counters["audits_missed"] += 1
            return
        try:
            await self.audit(link, record)
        except GliaError as error:
            self._counters["audits_missed"] += 1
            _log.info("window %s is not computed again: %s", short(name), error)

    # -- those that did not -------------------------------------------------------------------

    def _count(self, signer: NeuronId | None, finding: FindingValue) -> None:
        self._counters["windows_audited"] += 1
        self._counters[f"audits_{finding.verdict}"] += 1
        if signer is not None:
            self._peering.neurons.audited(signer, finding.verdict)

    def _refused(self, signer: NeuronId | None, finding: FindingValue) -> None:
        if not finding.audit:
            self._counters["windows_refused"] += 1
            if signer is not None:
                self._peering.neurons.checked(signer, 0, 1)

    async def _fell(self, name: WindowId, signer: NeuronId | None, finding: FindingValue) -> None:
        """A window must not be used, nor what follows it; whose lie it is, that is proven."""
        why = f"window {short(name)}: {describe(finding)}"
        await self._mark_answers(name)
        is_liar = (
            finding.verdict == "false"
            and signer is not None
            and signer != self._peering.signer.neuron
        )
        if is_liar and signer is not None:
            await self._caught(signer, why, [name])
        else:
            _log.info("not used: %s", why)
            await self._condemning.condemn([name], None)
            self._is_dirty = True
            self._wanted.set()
        await self._peering.save_neurons()

    async def _caught(self, signer: NeuronId, why: str, names: Sequence[WindowId]) -> None:
        """Believe it in nothing; these windows and all that it attested are used no more."""
        self._peering.neurons.caught(signer, why, time.time())
        self._counters["neurons_caught"] += 1
        _log.warning("neuron %s lied: %s", signer.hex(), why)
        await self._condemning.condemn(
            [*names, *await self._condemning.attested_by(signer)], signer
        )
        self._is_dirty = True
        self._wanted.set()

    async def _mark_answers(self, name: WindowId) -> None:
        """Those under way whose tokens begin with the window's chain."""
        try:
            chain = await self._memory.chain(name)
        except GliaError:
            return
        tokens = [token for record in chain for token in record.tokens]
        self._conversations.taint(chain[-1].model_id, tokens, name)

    async def _tell_engines(self) -> None:
        try:
            await erase_in_engines(self._engines.links(), lambda *_: None)
        except GliaError as error:  # nobody is given what they still have
            _log.info("an engine was not told: %s", error)

    def _acquit(self, window_ids: Sequence[WindowId]) -> None:
        self._acquitted += window_ids
        self._wanted.set()


def describe(finding: FindingValue) -> str:
    """What was wrong, in words."""
    if not finding.limit:
        return f"{finding.what}, layer {finding.layer}: {finding.verdict}"
    return (
        f"{finding.what}, layer {finding.layer}: {finding.error:.1e} off, "
        f"{finding.limit:.1e} is honest ({finding.verdict})"
    )
