"""What conversations say in public becomes visible to peers: their leading public windows.

Only windows whose tokens are, one for one, leading public tokens of the log are published
(SECURITY T13): the log is read for that, whatever an engine said the tip is. What this node
computed it signs, once; what came from peers has the links that it came with.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import trio

from daemon.conversations import Conversations
from daemon.memory import Memory
from glia.errors import (
    BadRequest,
    ConversationBusy,
    GliaError,
    MalformedParticle,
    NotFound,
    UnknownConversation,
)
from glia.graph.chain import walk
from glia.graph.conversation import Head, Replay
from glia.graph.link import Link, decode_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.publishable import public_windows
from glia.graph.spans import claims
from glia.graph.tokens import TOKEN_BYTES, unpack_tokens
from glia.graph.window import WindowRecord
from glia.store.published import Published

_FAILED_AGAIN_S = 60.0
_log = logging.getLogger("gliad.publisher")


@dataclass(frozen=True, slots=True)
class Visible:
    """What of some leading tokens of a conversation peers can see, or could.

    Attributes:
        num_tokens: so many they are.
        block_size: tokens of a window, 0 where no window of theirs is here.
        num_windows: whole windows of theirs that are here, and visible.
        num_new: of these were, or would be, not visible before.
    """

    num_tokens: int
    block_size: int
    num_windows: int
    num_new: int


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
        self._seen: dict[str, Head] = {}
        self._wanted = trio.Event()
        self.on_publish: Callable[[], None] = lambda: None

    def wake(self) -> None:
        """A conversation was made, has grown or is gone."""
        self._wanted.set()

    async def publish(self, name: str, num_tokens: int | None, *, dry: bool) -> Visible:
        """Publish the first tokens of a conversation, whatever their labels say; None: all.

        That is a decision about what is there now: labels stay, so nothing of what follows is
        public.

        Args: dry: only say what would be.
        Raises: UnknownConversation, ConversationBusy, BadRequest (more tokens than there are),
            StoreBroken, StoreFull.
        """
        replay = await self._conversations.read(name)
        num_all = replay.head.num_tokens
        if num_tokens is not None and num_tokens > num_all:
            raise BadRequest(f"{name} has {num_all:,} tokens", hint="leave out --up-to for all")
        num = num_all if num_tokens is None else num_tokens
        async with self._still:
            put = partial(self._put, replay, num, dry=dry)
            visible, num_links = await trio.to_thread.run_sync(put)
        if not dry:
            self._published_more(visible, num_links)
        return visible

    async def run(self) -> None:
        """Publish what is to be, for ever."""
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
                if head.num_public and self._seen.get(name) is not head:
                    await self._publish(name)
                    self._seen[name] = head
            except (UnknownConversation, ConversationBusy):  # it is gone, or goes
                continue
            except Exception as error:
                is_known = isinstance(error, GliaError)
                _log.warning("%s is not published: %s", name, error, exc_info=not is_known)
                self._counters["publish_failed"] += 1
                num_failed += 1
        return num_failed

    async def _publish(self, name: str) -> None:
        replay = await self._conversations.read(name)
        async with self._still:
            if name not in self._conversations:
                return
            put = partial(self._put, replay, replay.head.num_public)
            self._published_more(*await trio.to_thread.run_sync(put))

    def _published_more(self, visible: Visible, num_links: int) -> None:
        if visible.num_new:
            self._counters["windows_published"] += visible.num_new
            self._counters["links_signed"] += num_links
            self.on_publish()

    # -- in a worker thread -------------------------------------------------------------------

    def _put(self, replay: Replay, num_tokens: int, *, dry: bool = False) -> tuple[Visible, int]:
        """Publish whole windows of leading tokens. Returns: what is visible, links signed.

        Raises: StoreBroken, StoreFull.
        """
        windows = self._windows(replay, num_tokens)
        num_known = self._num_published(windows)
        block_size = len(windows[0].tokens) if windows else 0
        visible = Visible(num_tokens, block_size, len(windows), len(windows) - num_known)
        if dry or not visible.num_new:
            return visible, 0
        num_before = self._num_foreign(windows[:num_known])
        links = self._signed(windows, num_before)
        hold_until_s = int(self._now_s() + self._hold_s)
        self._published.put(windows[num_known:], links, hold_until_s)
        return visible, len(links)

    def _windows(self, replay: Replay, num_tokens: int) -> Sequence[WindowRecord]:
        """The longest chain of windows of leading tokens that is still here."""
        public = unpack_tokens(bytes(replay.tokens[: TOKEN_BYTES * num_tokens]))
        best: Sequence[WindowRecord] = ()
        for tip in reversed(replay.head.tips):
            try:
                chain = walk(tip, self._memory.records.get_now)
            except (NotFound, MalformedParticle):
                continue  # evicted, or damaged
            best = max(best, public_windows(chain, public), key=len)
            if (len(best) + 1) * len(chain[0].tokens) > len(public):
                break
        return best

    def _num_published(self, windows: Sequence[WindowRecord]) -> int:
        """Where a window is published, all before it are."""
        num = len(windows)
        while num and self._published.record(windows[num - 1].window_id) is None:
            num -= 1
        return num

    def _num_foreign(self, published: Sequence[WindowRecord]) -> int:
        """Windows up to the last one that others attest, and this node does not."""
        num = len(published)
        while num:
            links = map(decode_link, self._published.links(published[num - 1].window_id))
            own = [link.claim.num_before for link in links if link.signer == self._signer.neuron]
            if not own:
                break
            num = min(own)
        return num

    def _signed(self, windows: Sequence[WindowRecord], num_before: int) -> list[Link]:
        said = self._published.unsigned(self._signer.neuron, claims(windows, num_before))
        time_s = int(self._now_s())
        first = max(self._published.last_sequence(self._signer.neuron) + 1, time_s)
        return [
            sign_link(self._signer, claim, sequence, time_s)
            for sequence, claim in enumerate(said, first)
        ]
