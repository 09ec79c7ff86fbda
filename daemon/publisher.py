"""What conversations say in public becomes visible to peers: their leading public windows.

Only windows whose tokens are, one for one, leading public tokens of the log are published
(SECURITY T13): the log is read for that, whatever an engine said the tip is. What this node
computed it signs, once; what came from peers (glia/store/foreign.py) has the links that it
came with.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from daemon.conversations import Conversations
from daemon.memory import Memory
from daemon.public_part import Known, PublicPart, find_public_part
from glia.errors import BadRequest, ConversationBusy, GliaError, UnknownConversation
from glia.graph.conversation import Head
from glia.graph.ids import WindowId
from glia.graph.link import Claim, Link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import SPAN_WINDOWS, Base, claims
from glia.graph.tokens import TOKEN_BYTES
from glia.store.published import Published
from p2p.announcing import held_until_s

_FAILED_AGAIN_S = 60.0
_log = logging.getLogger("gliad.publisher")


@dataclass(frozen=True, slots=True)
class Visible:
    """What of some leading tokens of a conversation peers can see, or could.

    Attributes:
        num_tokens: so many they are.
        block_size: tokens of a window, 0 where no window of theirs is here.
        num_windows: whole windows of theirs that are visible.
        num_new: of these were, or would be, not visible before.
    """

    num_tokens: int
    block_size: int
    num_windows: int
    num_new: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """A conversation when it was last looked at. `known`: what of it was published then."""

    head: Head
    known: Known | None


class Publisher:
    """The one that publishes.

    Args:
        still: held by whoever forgets windows or publishes them.
        hold_s: how long what was published is not announced.
        now_s: seconds since 1970.

    Attributes:
        on_publish: called when there is something new to announce.
    """

    def __init__(
        self,
        memory: Memory,
        conversations: Conversations,
        published: Published,
        signer: Signer,
        still: trio.Lock,
        hold_s: float,
        counters: Counter[str],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._memory, self._conversations = memory, conversations
        self._published, self._signer = published, signer
        self._still, self._hold_s = still, hold_s
        self._counters, self._now_s = counters, now_s
        self._seen: dict[str, _Seen] = {}
        self._wanted = trio.Event()
        self.on_publish: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """A conversation was made, has grown or is gone."""
        self._wanted.set()

    def look_anew(self) -> None:
        """Some of what was published may be so no longer."""
        self._seen.clear()
        self.wake()

    async def publish(self, name: str, num_tokens: int | None, *, dry: bool) -> Visible:
        """Publish the first tokens of a conversation, whatever their labels say; None: all.

        That is a decision about what is there now: labels stay, so nothing of what follows is
        public.

        Args: dry: only say what would be.
        Raises: UnknownConversation, ConversationBusy, BadRequest (more tokens than there are),
            StoreBroken, StoreFull.
        """
        head, tokens = await self.read(name, num_tokens)
        return await self.show(name, tokens, head.tips[::-1], dry=dry)

    async def read(
        self, name: str, num_tokens: int | None, *, at_it: bool = False
    ) -> tuple[Head, bytes]:
        """A conversation, and its first tokens, packed; None: all.

        Args: at_it: the caller holds it.
        Raises: UnknownConversation, ConversationBusy, BadRequest, StoreBroken.
        """
        replay = await self._conversations.read(name, at_it=at_it)
        num_all = replay.head.num_tokens
        if num_tokens is not None and num_tokens > num_all:
            raise BadRequest(f"{name} has {num_all:,} tokens", hint="leave out --up-to for all")
        num = num_all if num_tokens is None else num_tokens
        return replay.head, bytes(replay.tokens[: TOKEN_BYTES * num])

    async def show(
        self, name: str, tokens: bytes, tips: Sequence[WindowId], *, dry: bool
    ) -> Visible:
        """Publish those windows of packed tokens that one of these tips has.

        Args: tips: the likeliest first.
        Raises: UnknownConversation, StoreBroken, StoreFull.
        """
        async with self._still:
            if name not in self._conversations:
                raise UnknownConversation(f"{name} was forgotten", hint="gliad conversations")
            find = partial(self._find, tips, tokens, None)
            part = await trio.to_thread.run_sync(find)
            if not dry:
                await self._put(part)
        num = len(tokens) // TOKEN_BYTES
        return Visible(num, part.block_size, part.num_windows, len(part.new))

    async def run(self) -> None:
        """Publish what is to be, for ever."""
        await self._sweep()
        while True:
            self._wanted = trio.Event()
            num_failed = await self._look()
            with trio.move_on_after(_FAILED_AGAIN_S if num_failed else float("inf")):
                await self._wanted.wait()

    async def _look(self) -> int:
        """Publish of every conversation that changed. Returns: how many failed."""
        names = self._conversations.names()
        self._seen = {name: self._seen[name] for name in names if name in self._seen}
        num_failed = 0
        for name in names:
            try:
                head = self._conversations.head(name)
                seen = self._seen.get(name)
                if head.num_public and (seen is None or seen.head is not head):
                    await self._publish(name, head, seen)
            except (UnknownConversation, ConversationBusy):  # it is gone, or goes
                continue
            except Exception as error:
                is_known = isinstance(error, GliaError)
                _log.warning("%s is not published: %s", name, error, exc_info=not is_known)
                self._counters["publish_failed"] += 1
                num_failed += 1
        return num_failed

    async def _publish(self, name: str, head: Head, seen: _Seen | None) -> None:
        """Args: head: as it is now, and the last time."""
        replay = await self._conversations.read(name)
        tokens = bytes(replay.tokens[: TOKEN_BYTES * replay.head.num_public])
        known = seen.known if seen is not None else None
        if known is None or not known.is_all_of(tokens):
            async with self._still:
                if not self._shows(name, replay.head):
                    return
                find = partial(self._find, replay.head.tips[::-1], tokens, known)
                part = await trio.to_thread.run_sync(find)
                await self._put(part)
            known = part.known(tokens)
        self._seen[name] = _Seen(head, known)

    def _shows(self, name: str, read: Head) -> bool:
        """Whether a conversation still shows what it did when it was read: it may have been
        forgotten meanwhile, or withdrawn. Then it is looked at again, as it has changed."""
        conversations = self._conversations
        return name in conversations and conversations.head(name).num_public >= read.num_public

    async def _sweep(self) -> None:
        """What came from peers, or was to, and is here no more is anybody's."""
        sweep = partial(self._published.foreign.sweep, self._memory.records.has)
        try:
            await trio.to_thread.run_sync(sweep)
        except GliaError as error:
            _log.warning("what came from peers is not looked through: %s", error)

    async def _put(self, part: PublicPart) -> None:
        """Raises: StoreBroken, StoreFull."""
        if part.new:
            put = partial(self._put_now, part, self._memory.table.names())
            self._counters["links_signed"] += await trio.to_thread.run_sync(put)
            self._counters["windows_published"] += len(part.new)
            self.on_publish()

    # -- in a worker thread -------------------------------------------------------------------

    def _find(self, tips: Sequence[WindowId], tokens: bytes, known: Known | None) -> PublicPart:
        """Raises: StoreBroken."""
        get = self._memory.records.get_now
        return find_public_part(tips, tokens, get, self._published, known)

    def _put_now(self, part: PublicPart, in_l1: Iterable[WindowId]) -> int:
        """Publish what is new. Returns: how many links were signed. Raises: as _put."""
        num = self._published.foreign.doubt(lambda: (*in_l1, *self._memory.store.windows()))
        if num:
            _log.warning("nothing says any more who made %d windows: they are not signed", num)
        links = self._signed(self._claims(part))
        self._published.put(part.new, links, held_until_s(self._now_s(), self._hold_s))
        return len(links)

    def _claims(self, part: PublicPart) -> list[Claim]:
        """What this node has computed of the last span that was begun, and of what is new."""
        first = part.num_published - part.num_published % SPAN_WINDOWS
        records, base = list(part.new), None
        if part.base is not None:
            counts = range(first, part.num_published + 1)
            rows = self._published.windows_at(part.base.window_id, counts)[::-1]
            if first:
                base = Base(rows[0].window_id, rows[0].prefix_key, first)
            records = [row.record() for row in rows if row.num_windows > first] + records
        flags = self._published.foreign.flags([record.window_id for record in records])
        num_before = max((first + num for num, flag in enumerate(flags, 1) if flag), default=0)
        return claims(records, num_before, base)

    def _signed(self, said: list[Claim]) -> list[Link]:
        """Those that were not signed yet."""
        said = self._published.unsigned(self._signer.neuron, said)
        time_s = int(self._now_s())
        first = max(self._published.last_sequence(self._signer.neuron) + 1, time_s)
        return [
            sign_link(self._signer, claim, sequence, time_s)
            for sequence, claim in enumerate(said, first)
        ]
