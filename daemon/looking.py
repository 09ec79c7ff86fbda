"""Which windows go, decided while others work on: looked up in threads, settled in one moment.

Windows that somebody came to reach during the look-up stay. What is returned is true
until the next await of the caller, who hides it before that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import trio

from daemon.attachments import Attachments, Layout
from daemon.conversations import Conversations
from daemon.doomed import AllTiers, Doomed, add_descendants, doomed_with
from daemon.memory import Memory
from daemon.past import Past
from daemon.reach import layouts_of
from daemon.survey import Survey, survey
from daemon.telling import Tell, told_from_thread
from glia.graph.ids import ModelId, WindowId
from glia.store.published import Published

_WHAT = "looking what others use"


class Looking:
    """The one that looks.

    Args:
        published: what peers may see, None where nothing was ever published.
        now_s: seconds since 1970.
    """

    def __init__(
        self,
        memory: Memory,
        conversations: Conversations,
        attachments: Attachments,
        published: Published | None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._memory = memory
        self._published, self._now_s = published, now_s
        self._conversations = conversations
        self._attachments = attachments

    async def with_conversations(self, names: Sequence[str], tell: Tell) -> Doomed:
        """What goes with these conversations; the caller holds them. Raises: StoreBroken."""
        targets = self._conversations.past(names, at_them=True)
        others = self._others(names)
        layouts = self._layouts(targets)
        tiers = self._tiers()

        def look() -> Doomed:
            for name in targets.kept:
                found = layouts_of(targets.tips(name), self._memory.records.get)
                layouts[targets.model_id(name)] |= found
            told = told_from_thread(tell, _WHAT)
            return doomed_with(targets, others, layouts, tiers, told)

        doomed = await trio.to_thread.run_sync(look)
        await self._settle(doomed, names, others, tell)
        return doomed

    async def add_sealed(self, doomed: Doomed) -> list[WindowId]:
        """Windows that were sealed behind those that go before these were hidden: they go, too.

        Nobody reaches them: he would reach what they continue, which then would stay.
        """
        before, tiers = set(doomed.key_of), self._tiers()
        await trio.to_thread.run_sync(add_descendants, doomed, tiers)
        return [name for name in doomed.key_of if name not in before]

    async def without_conversations(self, unreferenced: bool, tell: Tell) -> Doomed:
        """What stands behind a hole; also what no conversation reaches. Raises: StoreBroken."""
        others = self._others(())
        here = self._memory.table.names()

        def look() -> tuple[Survey, Doomed]:
            names = {*self._memory.store.windows(), *here}
            told = told_from_thread(tell, "looking at all windows")
            get, domains = self._memory.records.get_now, self._memory.domains
            found = survey(names, get, told, domains)
            doomed = Doomed(found.layouts, None, self._memory.domains)
            for name in found.behind_holes:
                doomed.add(name, None)
            if unreferenced:
                for name, key in found.key_of.items():
                    doomed.add(name, key)
                doomed.save_from(others, told_from_thread(tell, _WHAT))
                doomed.save_published(self._is_final)
            return found, doomed

        found, doomed = await trio.to_thread.run_sync(look)
        if unreferenced:
            await self._settle(doomed, (), others, tell)
        self._save_used(found, doomed, refused_too=not unreferenced)
        return doomed

    async def _settle(self, doomed: Doomed, names: Sequence[str], seen: Past, tell: Tell) -> None:
        """Save what was reached since `seen`, and what requests under way reach."""
        while True:
            now = self._others(names)
            changed = now.since(seen)
            if not changed.kept:
                break
            seen = now
            told = told_from_thread(tell, _WHAT)
            await trio.to_thread.run_sync(doomed.save_from, changed, told)
        for model_id, said in self._conversations.running():
            doomed.save_prompt(model_id, said.tokens, said.num_public, said.group)

    def _save_used(self, found: Survey, doomed: Doomed, *, refused_too: bool) -> None:
        """What is in use, not on disk yet or sealed since stays, and what it stands on.

        Args: refused_too: also what L2 had no room for.
        """
        table, refused = self._memory.table, self._memory.writer.is_refused
        coming = [n for n in doomed.key_of if table.is_dirty(n) and (refused_too or not refused(n))]
        used = [*coming, *filter(table.is_pinned, doomed.key_of)]
        records = [table.record(n) for n in table.names() if n not in found.parents]
        for name in (*used, *(record.before for record in records if record is not None)):
            at: WindowId | None = name
            while at is not None:
                doomed.save((at,))
                at = found.parents.get(at)

    def _others(self, names: Sequence[str]) -> Past:
        mine = set(names)
        return self._conversations.past([n for n in self._conversations.names() if n not in mine])

    def _layouts(self, targets: Past) -> dict[ModelId, set[Layout]]:
        models = {targets.model_id(name) for name in targets.kept}
        return {model_id: self._attachments.layouts(model_id) for model_id in models}

    def _tiers(self) -> AllTiers:
        """Windows of L1 as they are now, and of L2."""
        records, store, table = self._memory.records, self._memory.store, self._memory.table
        below: dict[WindowId, list[WindowId]] = defaultdict(list)
        for name in table.names():
            record = table.record(name)
            if record is not None:
                below[record.before].append(name)

        def children(window_id: WindowId) -> Iterator[WindowId]:
            yield from below.get(window_id, ())
            yield from store.children(window_id)

        domains = self._memory.domains
        return AllTiers(records.find, records.get, children, self._is_final, domains)

    def _is_final(self, window_id: WindowId) -> bool:
        published = self._published
        return published is not None and published.is_final(window_id, self._now_s())
