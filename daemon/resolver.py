"""Before an engine computes a prompt: what peers have of it is fetched, if that is sooner.

Of its public beginning first; then, where a group may read what follows, of that from members.

match     what is here already
pursue    who has more, and getting it (daemon/pursuing.py): before the engine begins, or,
          where that is sooner, while it computes
relay     what came is offered to others, with the links that it came with
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
from daemon.ways import InPublic, Rights, Way, in_group
from glia.errors import GliaError, NotFound, NotPermitted
from glia.graph.domain import Domain
from glia.graph.ids import WindowId
from glia.graph.link import Link
from glia.local.messages import Emitted, Generated, Progress
from glia.local.values import FetchedValue, SourceValue
from p2p.announcing import held_until_s
from p2p.attesting import relayed
from p2p.deciding import is_worth_asking

_log = logging.getLogger("gliad.resolver")


@dataclass
class Resolved:
    """What comes of one request's look-up, before its run and beside it.

    Attributes:
        binding: of the engine that will answer, None before there is one.
        why_not: why nobody was asked, as FetchedValue says it.
        pursuits: where peers are asked: in public, then in a group.
        relayed: of each, set when what came is offered to others, or cannot be; or nothing came.
    """

    binding: Binding | None = None
    why_not: str = ""
    pursuits: list[Pursuit] = field(default_factory=list)
    relayed: list[trio.Event] = field(default_factory=list)

    @property
    def of(self) -> Binding:
        """The binding, once there is one."""
        if self.binding is None:
            raise ValueError("nothing was resolved")
        return self.binding

    def began(self, link: EngineLink, run_id: int) -> None:
        """The engine has the run."""
        for pursuit in self.pursuits:
            pursuit.engine.begin(link, run_id)

    def heard(self, event: Progress | Emitted) -> Progress | Emitted:
        """What the engine says of the run, as it is to be told on."""
        for pursuit in self.pursuits:
            event = pursuit.heard(event)
        return event

    async def end(self) -> None:
        """The run has ended: nothing more is fetched, and what was not taken is given back.

        What came is offered by then: what of it is to be forgotten is taken back after that.
        """
        for pursuit in self.pursuits:
            pursuit.stop()
        await self.until_relayed()

    async def until_relayed(self) -> None:
        """Return when what came is offered to others, or cannot be."""
        for each in self.relayed:
            await each.wait()

    @property
    def timings_ms(self) -> dict[str, float]:
        """Of find and fetch, where the run waited for that."""
        parts = Counter[str]()
        for pursuit in self.pursuits:
            parts.update(pursuit.timings_ms)
        return dict(parts)

    def value(self) -> FetchedValue:
        """As an answer tells it, once it has ended."""
        if not self.pursuits or self.binding is None:
            return FetchedValue(0, [], self.why_not)
        size = self.binding.profile.block_size
        sources: dict[str, SourceValue] = {}
        for each in (closed for pursuit in self.pursuits for closed in pursuit.closed):
            before = sources.get(each.peer)
            num_blocks, num_bytes = (before.blocks, before.bytes) if before else (0, 0)
            sources[each.peer] = SourceValue(
                each.peer,
                num_blocks + each.num_blocks,
                num_bytes + each.num_bytes,
                each.verdict.value,
            )
        return FetchedValue(
            sum(pursuit.num_windows for pursuit in self.pursuits) * size,
            [*sources.values()],
            self.pursuits[-1].why,
            sum(pursuit.num_met for pursuit in self.pursuits) * size,
        )


@dataclass(frozen=True)
class Prompt:
    """What of a prompt others may be asked about.

    Attributes:
        num_public, num_shared: leading tokens that are public, and that are or are the group's.
        domain: where that begins, None where there is no group.
        exact: windows of other numerics classes are of no use.
    """

    tokens: Sequence[int]
    num_public: int
    exact: bool
    num_shared: int = 0
    domain: Domain | None = None

    def leading(self, num_tokens: int) -> Sequence[int]:
        """So many, but for the last one of all: that is always computed."""
        return self.tokens[: min(num_tokens, len(self.tokens) - 1)]


class Resolver:
    """Asks peers for prompts.

    Args:
        peering: None where this node is offline.
        hold_s: how long what came is not announced.
        piece_tokens: what engines compute in one go.
        nursery: searches and fetches run in it.
        groups: what this node may in them.
        learn: told the links of what came from members.
    """

    def __init__(
        self,
        memory: Memory,
        peering: Peering | None,
        hold_s: float,
        piece_tokens: int,
        counters: Counter[str],
        nursery: trio.Nursery,
        groups: Rights,
        learn: Callable[[Sequence[Link]], None],
    ) -> None:
        self._memory, self._peering = memory, peering
        self._hold_s, self._piece_tokens = hold_s, piece_tokens
        self._counters, self._nursery = counters, nursery
        self._groups, self._learn = groups, learn
        self._speeds = PrefillSpeeds()

    async def resolve(self, binding: Binding, prompt: Prompt, tell: Tell) -> Resolved:
        """Return when the engine is to begin: peers were asked for what of a prompt they may be.

        No peer hears of a prompt without a whole window of that. Nothing of a peer's is raised.

        Args: tell: hears how many tokens came.
        """
        resolved, size = Resolved(binding), binding.profile.block_size
        public, domain = prompt.leading(prompt.num_public), prompt.domain
        shared = () if domain is None else prompt.leading(prompt.num_shared)
        if max(len(public), len(shared)) < size:
            resolved.why_not = "private"
        elif self._peering is None or self._peering.why_off:
            resolved.why_not = "offline"
        else:
            of_group = domain is not None and len(shared) >= domain.start + size
            if len(public) >= size:
                exact = prompt.exact
                await self._in_public(self._peering, public, exact, resolved, tell, not of_group)
            is_ended = all(pursuit.ended.is_set() for pursuit in resolved.pursuits)
            if domain is not None and of_group and is_ended:
                await self._in_group(self._peering, shared, domain, prompt.exact, resolved, tell)
        return resolved

    async def _in_public(
        self,
        peering: Peering,
        public: Sequence[int],
        exact: bool,
        resolved: Resolved,
        tell: Tell,
        is_last: bool,
    ) -> None:
        """Args: resolved: its binding is there. is_last: as Task has it."""
        seen, binding = self._memory.hidden.num_changes, resolved.of
        here = await self._memory.longest(binding, public, exact=exact)
        wanted = wanted_of(binding, public, here, exact=exact)
        if wanted.num_missing:
            await self._look(InPublic(peering), wanted, seen, resolved, tell, is_last)

    async def _in_group(
        self,
        peering: Peering,
        shared: Sequence[int],
        domain: Domain,
        exact: bool,
        resolved: Resolved,
        tell: Tell,
    ) -> None:
        """Where what is public before it is here."""
        seen, binding = self._memory.hidden.num_changes, resolved.of
        try:
            way = in_group(peering, self._groups, domain)
        except (NotFound, NotPermitted) as error:
            _log.warning("members are not asked: %s", error)
            return
        here = await self._memory.longest(binding, shared, exact=exact, domain=domain)
        if way is None or len(here) * binding.profile.block_size < domain.start:
            return
        wanted = wanted_of(binding, shared, here, exact=exact, salt=way.salt)
        if wanted.num_missing:
            await self._look(way, wanted, seen, resolved, tell)

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
        self,
        way: Way,
        wanted: Wanted,
        seen: int,
        resolved: Resolved,
        tell: Tell,
        is_last: bool = True,
    ) -> None:
        size = wanted.binding.profile.block_size
        window_s = size / self._speeds.of(wanted.binding)
        task = Task(wanted, seen, window_s, max(1, self._piece_tokens // size), is_last)
        if not is_worth_asking(task.compute_s):
            resolved.why_not = "quick"
            self._counters["not_fetched_quick"] += 1
            return
        self._counters["prompts_searched"] += 1
        pursuit = Pursuit(self._memory, way, task, tell, self._counters, self._nursery)
        relayed = trio.Event()
        resolved.pursuits.append(pursuit)
        resolved.relayed.append(relayed)
        self._nursery.start_soon(self._pursue, way, pursuit, relayed)
        try:
            await pursuit.until_begin()
        except BaseException:
            with trio.CancelScope(shield=True):
                await resolved.end()
            raise

    async def _pursue(self, way: Way, pursuit: Pursuit, done: trio.Event) -> None:
        try:
            await pursuit.run()
            if pursuit.why:
                self._counters[f"not_fetched_{pursuit.why}"] += 1
            if pursuit.num_windows:
                self._counters["windows_fetched"] += pursuit.num_windows
                if way.salt is None:
                    await self._relay(way.peering, pursuit)
                elif pursuit.found is not None:  # what the group is shown follows from logs
                    self._counters["group_windows_fetched"] += pursuit.num_windows
                    self._learn(pursuit.found.links)
        finally:
            done.set()

    async def _relay(self, peering: Peering, pursuit: Pursuit) -> None:
        """Offer what came to others, as what others attest."""
        found, published = pursuit.found, peering.published
        if found is None:
            return
        condemned = self._memory.hidden.condemned
        here = [each.window_id for each in found.chain[: pursuit.num_here]]
        num = next((n for n, name in enumerate(here) if name in condemned), len(here))
        records, links = relayed([*found.chain, *found.beyond], num, found.links)
        hold_until_s = held_until_s(time.time(), self._hold_s)
        try:
            await trio.to_thread.run_sync(published.put, records, links, hold_until_s)
        except GliaError as error:
            _log.warning("what peers sent is not offered to others: %s", error)
        except Exception:
            _log.exception("what peers sent is not offered to others")
