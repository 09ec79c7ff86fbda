"""Before an engine computes a public prompt: what peers have of it is fetched, if that is sooner.

    match     what is here already
    search    who has more, for as long as a small share of computing it would take
    fetch     into L1, as long as windows come sooner than they would be computed
    relay     what came is offered to others, with the links that it came with

For now only the engine's own numerics class is asked for, so all answers are exact.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from daemon.binding import Binding
from daemon.bringing import Bringing
from daemon.memory import Memory
from daemon.peering import Peering
from daemon.prefill import PrefillSpeeds
from daemon.proving import Proven
from daemon.searching import Searcher, Wanted, wanted_of
from daemon.telling import Tell
from glia.errors import GliaError
from glia.graph.link import Link
from glia.graph.window import WindowRecord
from glia.local.messages import Generated
from glia.local.values import FetchedValue, SourceValue
from p2p.attesting import relayed
from p2p.deciding import budget_s, is_worth_asking
from p2p.getter import Close

_log = logging.getLogger("gliad.resolver")


@dataclass
class Resolved:
    """What came of one request's look-up.

    Attributes:
        binding: of the engine that will answer, None before there is one.
        why: why no more was fetched, as FetchedValue says it.
        closed: what each peer gave.
        timings_ms: of find and fetch, where that was done.
        relayed: set when what came is offered to others, or cannot be.
    """

    binding: Binding | None = None
    why: str = ""
    num_windows: int = 0
    num_tokens: int = 0
    closed: list[Close] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)
    relayed: trio.Event = field(default_factory=trio.Event)

    def value(self) -> FetchedValue:
        """As an answer tells it."""
        sources = [
            SourceValue(each.peer, each.num_blocks, each.num_bytes, each.verdict.value)
            for each in self.closed
        ]
        return FetchedValue(self.num_tokens, sources, self.why)


class Resolver:
    """Asks peers for prompts.

    Args:
        peering: None where this node is offline.
        hold_s: how long what came is not announced.
        nursery: what a search and a fetch leave behind ends in it.
    """

    def __init__(
        self,
        memory: Memory,
        peering: Peering | None,
        hold_s: float,
        counters: Counter[str],
        nursery: trio.Nursery,
    ) -> None:
        self._memory, self._peering = memory, peering
        self._hold_s, self._counters, self._nursery = hold_s, counters, nursery
        self._speeds = PrefillSpeeds()

    async def resolve(
        self, binding: Binding, tokens: Sequence[int], num_public: int, tell: Tell
    ) -> Resolved:
        """Have in L1 what peers have of a prompt's leading public tokens.

        No peer hears of a prompt without a whole public window. Nothing of a peer's is raised.

        Args: tell: hears how many tokens were fetched.
        """
        resolved = Resolved(binding)
        public = tokens[: min(num_public, len(tokens) - 1)]  # the last one is always computed
        if len(public) < binding.profile.block_size:
            resolved.why = "private"
        elif self._peering is None or self._peering.why_off:
            resolved.why = "offline"
        else:
            seen = self._memory.hidden.num_changes
            here = await self._memory.longest(binding, public)
            wanted = wanted_of(binding, public, here)
            if wanted.num_missing:
                await self._look(self._peering, wanted, seen, resolved, tell)
        if not resolved.num_windows:
            resolved.relayed.set()
        return resolved

    def learn(self, resolved: Resolved, generated: Generated) -> None:
        """How long an engine took for what peers did not have."""
        if resolved.binding is not None:
            self._speeds.learn(resolved.binding, generated)

    async def _look(
        self, peering: Peering, wanted: Wanted, seen: int, resolved: Resolved, tell: Tell
    ) -> None:
        window_s = wanted.binding.profile.block_size / self._speeds.of(wanted.binding)
        compute_s = wanted.num_missing * window_s
        if not is_worth_asking(compute_s):
            resolved.why = "quick"
            return
        self._counters["prompts_searched"] += 1
        began_s = trio.current_time()
        searcher = Searcher(peering, self._counters, self._nursery)
        result = await searcher.search(wanted, budget_s(compute_s))
        resolved.timings_ms["find"] = (trio.current_time() - began_s) * 1000
        if result.found is None:
            resolved.why = "unheard" if result.is_unheard else "nobody"
        else:
            self._counters["prompts_found"] += 1
            await self._fetch(peering, wanted, result.found, seen, window_s, resolved, tell)
        if resolved.why:
            self._counters[f"not_fetched_{resolved.why}"] += 1

    async def _fetch(
        self,
        peering: Peering,
        wanted: Wanted,
        found: Proven,
        seen: int,
        window_s: float,
        resolved: Resolved,
        tell: Tell,
    ) -> None:
        began_s = trio.current_time()
        bringing = Bringing(
            self._memory, peering, wanted, found, seen, window_s, tell, self._nursery
        )
        try:
            resolved.why = await bringing.run()
        finally:
            num = bringing.num_taken
            resolved.timings_ms["fetch"] = (trio.current_time() - began_s) * 1000
            resolved.num_windows = num
            resolved.num_tokens = num * wanted.binding.profile.block_size
            resolved.closed = bringing.closed
            self._counters["windows_fetched"] += num
            if num:
                said = relayed([*found.chain, *found.beyond], bringing.num_here, found.links)
                self._nursery.start_soon(self._relay, peering, *said, resolved.relayed)

    async def _relay(
        self,
        peering: Peering,
        records: Sequence[WindowRecord],
        links: Sequence[Link],
        done: trio.Event,
    ) -> None:
        """Offer what came to others, as what others attest."""
        hold_until_s = int(time.time() + self._hold_s)
        put = peering.published.put
        try:
            await trio.to_thread.run_sync(put, records, links, hold_until_s)
        except GliaError as error:
            _log.warning("what peers sent is not offered to others: %s", error)
        except Exception:
            _log.exception("what peers sent is not offered to others")
        finally:
            done.set()
