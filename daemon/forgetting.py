"""Conversations are forgotten, one job after the other, in a task of its own.

    wait      until engines have ended what was given up: what that seals is to be found
    look      which windows go with them; others work on meanwhile (daemon/doomed.py)
    decide    at once: what was reached meanwhile stays, the rest is hidden
    mark      durably: whatever happens now, the next start goes on
    erase     the windows' bytes in every tier (daemon/erasing.py), then the conversations' files

What is published stays once its hold is over, as peers may have been told of it; before, it is
taken back.

A job that has begun goes on when the one who asked goes away.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import trio

from daemon.conversations import Conversations
from daemon.doomed import Doomed
from daemon.engines import Engines
from daemon.erasing import erase, erase_in_engines, until_given_up_ended
from daemon.looking import Looking
from daemon.memory import Memory
from daemon.telling import Tell
from glia.errors import ConversationBusy, GliaError, StoreBroken, UnknownConversation
from glia.graph.ids import WindowId
from glia.store.published import Published

_HOUR_S = 3600.0
_SETTLE_S = 5.0  # for the writer; a disk that hangs keeps nobody from the rest
_log = logging.getLogger("gliad.forgetting")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What went: conversations, windows, bytes on disk; windows that stay.

    Attributes:
        num_shared: windows that stay, as other conversations reach them.
        num_published: windows that stay, as they are published for good.
        num_damaged: conversations of which something could not be read.
    """

    num_conversations: int = 0
    num_windows: int = 0
    freed_bytes: int = 0
    num_shared: int = 0
    num_published: int = 0
    num_damaged: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.num_conversations + other.num_conversations,
            self.num_windows + other.num_windows,
            self.freed_bytes + other.freed_bytes,
            self.num_shared + other.num_shared,
            self.num_published + other.num_published,
            self.num_damaged + other.num_damaged,
        )


class _Job:
    """Something to do, and what became of it."""

    def __init__(self, work: Callable[[Tell], Awaitable[Outcome]], tell: Tell) -> None:
        self._work = work
        self.tell = tell
        self.done = trio.Event()
        self.outcome: Outcome | GliaError = Outcome()

    async def run(self) -> None:
        """Do it. Nothing but cancellation leaves here."""
        try:
            self.outcome = await self._work(lambda *how_far: self.tell(*how_far))
        except GliaError as error:
            self.outcome = error
        except Exception as error:  # whatever it is: what was to be forgotten stays marked
            _log.exception("forgetting failed")
            self.outcome = GliaError(f"forgetting failed: {type(error).__name__}")
        self.done.set()


class Forgetting:
    """The one that forgets.

    Args:
        now_s: seconds since 1970.

    Attributes:
        still: held while windows go; who publishes some holds it, too.
    """

    def __init__(
        self,
        memory: Memory,
        conversations: Conversations,
        engines: Engines,
        looking: Looking,
        published: Published | None,
        take_back: Callable[[Sequence[WindowId]], None] = lambda _: None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._memory = memory
        self._conversations = conversations
        self._engines = engines
        self._looking = looking
        self._published, self._take_back = published, take_back
        self._now_s = now_s
        self.still = trio.Lock()
        self._jobs: deque[_Job] = deque()
        self._failed: set[str] = set()
        self._leaves_holes = False  # some of a conversation went, and the rest may hang on that
        self._wanted = trio.Event()

    async def forget(self, name: str, tell: Tell) -> Outcome:
        """Forget a conversation.

        Raises: UnknownConversation; ConversationBusy (it is being answered in, or somebody
            has leased its windows); StoreBroken, StoreFull (it is gone on with later).
        """
        with self._conversations.hold(name):  # said at once, before others' jobs
            pass
        return await self._do(lambda tell: self._forget([name], tell), tell)

    async def collect(self, tell: Tell, *, unreferenced: bool) -> Outcome:
        """Forget what has expired, drop what stands behind holes, or what nobody reaches."""
        expired = await self._do(self._expire, tell)
        return expired + await self._do(lambda tell: self._sweep(unreferenced, tell), tell)

    def wake(self) -> None:
        """Something may be to do."""
        self._wanted.set()

    async def run(self) -> None:
        """Forget what is asked, and what is marked, for ever."""
        self._leaves_holes = bool(self._conversations.marked())  # a crash may have been between
        while True:
            self._wanted = trio.Event()
            if self._jobs:
                await self._run(self._jobs.popleft())
            elif marked := self._due():
                await self._forget_marked(marked)
            elif self._leaves_holes and not self._conversations.marked():
                self._leaves_holes = False
                await self._run(_Job(lambda tell: self._sweep(False, tell), _nobody))
            else:
                await self._wanted.wait()

    async def run_expiry(self) -> None:
        """Forget what expires, and strays, at once and every hour, for ever."""
        while True:
            try:
                await self._do(self._expire, _nobody)
                if self._conversations.strays:
                    await self._do(self._sweep_strays, _nobody)
            except GliaError as error:
                _log.warning("what has expired is not forgotten: %s", error)
            await trio.sleep(_HOUR_S)

    async def _run(self, job: _Job) -> None:
        async with self.still:
            await job.run()

    async def _do(self, work: Callable[[Tell], Awaitable[Outcome]], tell: Tell) -> Outcome:
        job = _Job(work, tell)
        self._jobs.append(job)
        self.wake()
        try:
            await job.done.wait()
        finally:
            job.tell = _nobody
            if job in self._jobs:
                self._jobs.remove(job)
        if isinstance(job.outcome, GliaError):
            raise job.outcome
        return job.outcome

    def _due(self) -> list[str]:
        return [name for name in self._conversations.forgettable() if name not in self._failed]

    async def _forget_marked(self, names: Sequence[str]) -> None:
        """What a crash, or a failure before, left to be done."""
        job = _Job(lambda tell: self._forget(names, tell), _nobody)
        await self._run(job)
        if isinstance(job.outcome, GliaError):
            _log.warning("%d conversations are not forgotten yet: %s", len(names), job.outcome)
            self._failed.update(names)

    async def _expire(self, tell: Tell) -> Outcome:
        names = [*self._conversations.expired(self._now_s()), *self._conversations.forgettable()]
        if not names:
            return Outcome()
        try:
            return await self._forget(names, tell)
        except (ConversationBusy, UnknownConversation, StoreBroken):
            outcome = Outcome()
            for name in names:  # one by one: only that one is held up
                try:
                    outcome += await self._forget([name], tell)
                except (ConversationBusy, UnknownConversation) as error:
                    _log.info("not forgotten now: %s", error)
                except StoreBroken as error:
                    if name in self._conversations.marked():  # its file was read: it is the store
                        raise
                    _log.error("not forgotten now: %s", error)
            return outcome

    async def _forget(self, names: Sequence[str], tell: Tell) -> Outcome:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(self._conversations.hold(name))
            await until_given_up_ended(self._engines.links(), tell)
            doomed = await self._looking.with_conversations(names, tell)
            self._check_leases(names, doomed)
            with ExitStack() as hidden:
                hidden.enter_context(self._hidden(list(doomed.key_of)))
                while sealed := await self._looking.add_sealed(doomed):
                    hidden.enter_context(self._hidden(sealed))
                self._check_leases(names, doomed)
                window_ids = list(doomed.key_of)
                for name in names:
                    await self._conversations.mark(name)
                try:
                    freed_bytes = await self._erase(window_ids, tell)
                except GliaError:
                    self._leaves_holes = True
                    raise
            await erase_in_engines(self._engines.links(), tell)
            num_damaged = sum(map(self._conversations.was_set_aside, names))
            for name in names:
                await self._conversations.remove(name)
                self._failed.discard(name)
        return Outcome(
            len(names),
            len(window_ids),
            freed_bytes,
            doomed.num_saved,
            doomed.num_published,
            num_damaged,
        )

    async def _erase(self, window_ids: Sequence[WindowId], tell: Tell) -> int:
        """Take hidden windows back, if they are published but not for good, and remove them."""
        if self._published is not None:
            await trio.to_thread.run_sync(self._published.forget, window_ids)
        await trio.to_thread.run_sync(self._take_back, window_ids)
        return (await erase(self._memory, window_ids, tell)).freed_bytes

    def _check_leases(self, names: Sequence[str], doomed: Doomed) -> None:
        """Raises: ConversationBusy where somebody has leased what is to go."""
        holders = self._memory.leases.holders_of(doomed.key_of)
        if holders:
            raise ConversationBusy(
                f"{', '.join(holders)} has leased windows of {names[0]}",
                hint="ask again when that process has given them back, or end it",
            )

    async def _sweep_strays(self, tell: Tell) -> Outcome:
        """Nobody can say what they are, but no conversation reaches them."""
        self._conversations.strays = False
        try:
            return await self._sweep(True, tell)
        except BaseException:
            self._conversations.strays = True
            raise

    async def _sweep(self, unreferenced: bool, tell: Tell) -> Outcome:
        await until_given_up_ended(self._engines.links(), tell)
        if unreferenced:  # what waits to be written, or to be refused, would stay
            with trio.move_on_after(_SETTLE_S):
                await self._memory.writer.flush_all()
        doomed = await self._looking.without_conversations(unreferenced, tell)
        window_ids = list(doomed.key_of)
        freed_bytes = 0
        if window_ids:
            with self._hidden(window_ids):
                freed_bytes = await self._erase(window_ids, tell)
        await erase_in_engines(self._engines.links(), tell)
        return Outcome(0, len(window_ids), freed_bytes)

    @contextmanager
    def _hidden(self, window_ids: Sequence[WindowId]) -> Iterator[None]:
        self._memory.hidden.hide(window_ids)
        try:
            yield
        finally:
            self._memory.hidden.show(window_ids)


def _nobody(what: str, done: int, total: int) -> None:
    """Nobody listens."""
