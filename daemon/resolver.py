"""Before an engine computes a public prompt: what peers have of it is fetched, if that is sooner.

match     what is here already
pursue    who has more, and getting it (daemon/pursuing.py): before the engine begins, or,
          where that is sooner, while it computes
relay     what came is offered to others, with the links that it came with
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from daemon.binding import Binding
from daemon.link import EngineLink
from daemon.memory import Memory
from daemon.peering import Peering
from daemon.prefill import PrefillSpeeds
from daemon.pursuing import Pursuit, Task
from daemon.searching import Wanted, wanted_of
from daemon.telling import Tell
from glia.errors import GliaError
from glia.graph.ids import WindowId
from glia.local.messages import Emitted, Generated, Progress
from glia.local.values import FetchedValue, SourceValue
from p2p.attesting import relayed
from p2p.deciding import is_worth_asking

_log = logging.getLogger("gliad.resolver")


@dataclass
class Resolved:
    """What comes of one request's look-up, before its run and beside it.

    Attributes:
        binding: of the engine that will answer, None before there is one.
        why_not: why nobody was asked, as FetchedValue says it.
        pursuit: where peers are asked.
        relayed: set when what came is offered to others, or cannot be; or nothing came.
    """

    binding: Binding | None = None
    why_not: str = ""
    pursuit: Pursuit | None = None
    relayed: trio.Event = field(default_factory=trio.Event)

    def began(self, link: EngineLink, run_id: int) -> None:
        """The engine has the run."""
        if self.pursuit is not None:
            self.pursuit.engine.begin(link, run_id)

    def heard(self, event: Progress | Emitted) -> Progress | Emitted:
        """What the engine says of the run, as it is to be told on."""
        return event if self.pursuit is None else self.pursuit.heard(event)

    async def end(self) -> None:
        """The run has ended: nothing more is fetched, and what was not taken is given back.

        What came is offered by then: what of it is to be forgotten is taken back after that.
        """
        if self.pursuit is not None:
            self.pursuit.stop()
            await self.relayed.wait()

    @property
    def timings_ms(self) -> dict[str, float]:
        """Of find and fetch, where the run waited for that."""
        return self.pursuit.timings_ms if self.pursuit else {}

    def value(self) -> FetchedValue:
        """As an answer tells it, once it has ended."""
        if self.pursuit is None or self.binding is None:
            return FetchedValue(0, [], self.why_not)
        size, pursuit = self.binding.profile.block_size, self.pursuit
        sources: dict[str, SourceValue] = {}
        for each in pursuit.closed:
            before = sources.get(each.peer)
            num_blocks, num_bytes = (before.blocks, before.bytes) if before else (0, 0)
            sources[each.peer] = SourceValue(
                each.peer,
                num_blocks + each.num_blocks,
                num_bytes + each.num_bytes,
                each.verdict.value,
            )
        return FetchedValue(
            pursuit.num_windows * size, [*sources.values()], pursuit.why, pursuit.num_met * size
        )


class Resolver:
    """Asks peers for prompts.

    Args:
        peering: None where this node is offline.
        hold_s: how long what came is not announced.
        piece_tokens: what engines compute in one go.
        nursery: searches and fetches run in it.
    """

    def __init__(
        self,
        memory: Memory,
        peering: Peering | None,
        hold_s: float,
        piece_tokens: int,
        counters: Counter[str],
        nursery: trio.Nursery,
    ) -> None:
        self._memory, self._peering = memory, peering
        self._hold_s, self._piece_tokens = hold_s, piece_tokens
        self._counters, self._nursery = counters, nursery
        self._speeds = PrefillSpeeds()

    async def resolve(
        self,
        binding: Binding,
        tokens: Sequence[int],
        num_public: int,
        exact: bool,
        tell: Tell,
    ) -> Resolved:
        """Return when the engine is to begin: peers were asked for a prompt's public beginning.

        No peer hears of a prompt without a whole public window. Nothing of a peer's is raised.

        Args:
            exact: windows of other numerics classes are of no use.
            tell: hears how many tokens came.
        """
        resolved = Resolved(binding)
        public = tokens[: min(num_public, len(tokens) - 1)]  # the last one is always computed
        if len(public) < binding.profile.block_size:
            resolved.why_not = "private"
        elif self._peering is None or self._peering.why_off:
            resolved.why_not = "offline"
        else:
            seen = self._memory.hidden.num_changes
            here = await self._memory.longest(binding, public, exact=exact)
            wanted = wanted_of(binding, public, here, exact=exact)
            if wanted.num_missing:
                await self._look(self._peering, wanted, seen, resolved, tell)
        if resolved.pursuit is None:
            resolved.relayed.set()
        return resolved

    def expect(self) -> None:
        """A prompt that peers may be asked about waits for its engine: use the time."""
        if self._peering is not None and not self._peering.why_off:
            self._peering.prepare()

    def loaded(self, binding: Binding, tokens_per_s: float) -> None:
        """An engine can run; how fast it computed a short prompt, 0 where it did not say."""
        self._speeds.guess(binding, tokens_per_s)

    def prefill_s(self, binding: Binding, num_tokens: int) -> float | None:
        """How long computing so many tokens takes; None where none ever were."""
        speed = self._speeds.known(binding)
        return num_tokens / speed if speed else None

    def learn(self, resolved: Resolved, generated: Generated) -> None:
        """How long an engine took for what peers did not have."""
        if resolved.binding is not None:
            self._speeds.learn(resolved.binding, generated)

    async def is_exact(self, resolved: Resolved, generated: Generated, *, required: bool) -> bool:
        """Whether an answer used and made windows of its engine's own class alone.

        Args: required: its engine was told to use no others.
        """
        cached = generated.usage.cached
        if resolved.binding is None or not (cached.l0 or cached.l1 or cached.l2 or cached.peers):
            return True
        if generated.tip is None:  # they could not be kept, and nothing says which they were
            return required
        return await self._memory.is_exact(resolved.binding, WindowId(generated.tip))

    async def _look(
        self, peering: Peering, wanted: Wanted, seen: int, resolved: Resolved, tell: Tell
    ) -> None:
        size = wanted.binding.profile.block_size
        window_s = size / self._speeds.of(wanted.binding)
        task = Task(wanted, seen, window_s, max(1, self._piece_tokens // size))
        if not is_worth_asking(task.compute_s):
            resolved.why_not = "quick"
            self._counters["not_fetched_quick"] += 1
            return
        self._counters["prompts_searched"] += 1
        pursuit = Pursuit(self._memory, peering, task, tell, self._counters, self._nursery)
        resolved.pursuit = pursuit
        self._nursery.start_soon(self._pursue, peering, pursuit, resolved.relayed)
        try:
            await pursuit.until_begin()
        except BaseException:
            with trio.CancelScope(shield=True):
                await resolved.end()
            raise

    async def _pursue(self, peering: Peering, pursuit: Pursuit, done: trio.Event) -> None:
        try:
            await pursuit.run()
            if pursuit.why:
                self._counters[f"not_fetched_{pursuit.why}"] += 1
            if pursuit.num_windows:
                self._counters["windows_fetched"] += pursuit.num_windows
                await self._relay(peering, pursuit)
        finally:
            done.set()

    async def _relay(self, peering: Peering, pursuit: Pursuit) -> None:
        """Offer what came to others, as what others attest."""
        found, published = pursuit.found, peering.published
        if found is None:
            return
        records, links = relayed([*found.chain, *found.beyond], pursuit.num_here, found.links)
        hold_until_s = int(time.time() + self._hold_s)
        try:
            await trio.to_thread.run_sync(published.put, records, links, hold_until_s)
        except GliaError as error:
            _log.warning("what peers sent is not offered to others: %s", error)
        except Exception:
            _log.exception("what peers sent is not offered to others")
