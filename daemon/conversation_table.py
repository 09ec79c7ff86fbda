"""What each conversation's file is known to be; read, and mended where it proves to be damaged.

Owned by the trio thread, which leaves what blocks to worker threads.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import trio

from daemon.conversation_files import LIVE, MARKED, ConversationFiles, Opened
from daemon.mending import Kept, Mended
from daemon.taken import Taken
from glia.errors import StoreBroken, StoreFull, StoreVersion, UnknownConversation
from glia.graph.conversation import Replay

_log = logging.getLogger("gliad.conversations")


class ConversationTable:
    """Names, and what there is of each.

    Args:
        on_change: called when one was lost, or mended.

    Attributes:
        live: those that are not being forgotten.
        marked: those that are.
        aside: names of which something was set aside, as it was damaged.
        counters: files that were cut, and set aside.
    """

    def __init__(
        self,
        files: ConversationFiles,
        opened: Opened,
        taken: Taken,
        on_change: Callable[[], None],
    ) -> None:
        self._files, self._taken, self._on_change = files, taken, on_change
        self.live, self.marked, self.aside = opened.live, opened.marked, set(opened.aside)
        self.counters: Counter[str] = Counter(
            conversations_cut=opened.num_cut, conversations_bad=opened.num_bad
        )
        self._mending = trio.Lock()
        self._mender = trio.CapacityLimiter(1)

    def kept(self, name: str) -> Kept | None:
        """What one's file is, marked ones included."""
        return self.live.get(name) or self.marked.get(name)

    def suffix(self, name: str) -> str:
        """That of its file."""
        return LIVE if name in self.live else MARKED

    def is_aside(self, name: str) -> bool:
        """Whether all there is of it was set aside."""
        return name in self.aside and self.kept(name) is None

    def drop(self, name: str, kept: Kept) -> None:
        """Its file is gone."""
        if self.live.get(name) is kept:
            del self.live[name]
            self._on_change()

    async def read(self, name: str, kept: Kept) -> Replay:
        """What a file says. Raises: UnknownConversation, StoreBroken."""
        try:
            return await trio.to_thread.run_sync(self._files.read, name, kept, self.suffix(name))
        except UnknownConversation:
            self.drop(name, kept)
            raise

    async def mend(self, name: str, before: Kept, *, at_it: bool) -> Kept | None:
        """Treat a file that turned out to be damaged as a start does; others go on meanwhile.

        Args: at_it: the caller is at it; else nobody may be.
        Returns: what is whole of it, None where nothing is.
        Raises: StoreBroken where nothing can be done about it now.
        """
        async with self._mending:
            if self.kept(name) is not before:  # somebody else did it, or it is gone
                return self.kept(name)
            if at_it:
                return await self._mend(name, before)
            if name in self._taken:
                hint = "ask again when nobody is at it: gliad ps shows what runs"
                raise StoreBroken(f"{name} is damaged", hint=hint)
            with self._taken.by(name, "is damaged, and being mended"):
                return await self._mend(name, before)

    async def _mend(self, name: str, before: Kept) -> Kept | None:
        suffix, mend = self.suffix(name), self._files.mend
        try:
            # A thread of its own: those who wait for this may have all the others.
            mended = await trio.to_thread.run_sync(mend, name, suffix, limiter=self._mender)
        except UnknownConversation:
            self.drop(name, before)
            return None
        except (StoreFull, StoreVersion) as error:
            raise StoreBroken(
                f"{name} is damaged, and cannot be set aside: {error.message}", hint=error.hint
            ) from error
        self._count(name, before, mended)
        table = self.live if suffix == LIVE else self.marked
        if mended.kept is not None:
            table[name] = mended.kept
        else:
            del table[name]
        self._on_change()
        return mended.kept

    def _count(self, name: str, before: Kept, mended: Mended) -> None:
        is_shorter = mended.kept is not None and mended.kept.size_bytes < before.size_bytes
        if is_shorter and not mended.was_cut:
            _log.error("%s: its last turns are lost", name)
        self.counters["conversations_cut"] += mended.was_cut or is_shorter
        if mended.is_aside:
            self.counters["conversations_bad"] += 1
            self.aside.add(name)
