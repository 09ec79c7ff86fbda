"""What conversations say to a group becomes visible to its members.

Windows of the leading span that is public, then the group's: nothing that follows it, whatever it
is sealed with. What this node computed it signs, once; what came from members has the links that
it came with.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import trio

from daemon.conversations import Conversations
from daemon.group_part import GroupPart, group_part, shared_windows
from daemon.memory import Memory
from daemon.shared import Shared
from glia.errors import ConversationBusy, GliaError, UnknownConversation
from glia.graph.conversation import Head
from glia.graph.group import GroupId
from glia.graph.ids import WindowId
from glia.graph.link import Link, sign_link
from glia.graph.neuron import Signer
from glia.graph.sealed_link import seal_link
from glia.graph.spans import claims
from glia.graph.tokens import TOKEN_BYTES
from glia.graph.window import WindowRecord
from glia.store.group_rows import GroupLink
from glia.store.published import Published
from p2p.announcing import held_until_s

_FAILED_AGAIN_S = 60.0
_MAX_LEARNED = 4096  # tips of links that came with windows, until these are published
_MAX_A_TIP = 4  # links: each is a row for each window that it attests, and neurons cost nothing
_log = logging.getLogger("gliad.group_publisher")


class GroupPublisher:
    """The one that publishes to groups.

    Args:
        shared: what groups are shown.
        published: says which windows came from others.
        still: held by whoever forgets windows or publishes them.
        hold_s: how long what was published is not announced.
        now_s: seconds since 1970.

    Attributes:
        on_publish: told what was published, each time that it is more, or was looked at first.
    """

    def __init__(
        self,
        memory: Memory,
        conversations: Conversations,
        shared: Shared,
        published: Published,
        signer: Signer,
        still: trio.Lock,
        hold_s: float,
        counters: Counter[str],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._memory, self._conversations, self._shared = memory, conversations, shared
        self._index, self._published, self._signer = shared.index, published, signer
        self._still, self._hold_s = still, hold_s
        self._counters, self._now_s = counters, now_s
        self._seen: dict[str, Head] = {}
        self._learned: OrderedDict[WindowId, list[Link]] = OrderedDict()  # by tip
        self._wanted = trio.Event()
        self.on_publish: Callable[[GroupPart], None] = lambda _: None

    def wake(self) -> None:
        """A conversation was made, has grown or is gone."""
        self._wanted.set()

    def look_anew(self) -> None:
        """Some of what was published may be so no longer; or there is a group more."""
        self._seen.clear()
        self.wake()

    def learn(self, links: Iterable[Link]) -> None:
        """These came with windows of members; they are told on with them."""
        for link in links:
            known = self._learned.setdefault(link.claim.tip, [])
            if link not in known and len(known) < _MAX_A_TIP:
                known.append(link)
        while len(self._learned) > _MAX_LEARNED:
            self._learned.popitem(last=False)

    async def run(self) -> None:
        """Publish what is to be, for ever."""
        while True:
            self._wanted = trio.Event()
            num_failed = await self._look()
            with trio.move_on_after(_FAILED_AGAIN_S if num_failed else float("inf")):
                await self._wanted.wait()

    async def _look(self) -> int:
        """Publish of every conversation that changed. Returns: how many failed."""
        await trio.to_thread.run_sync(self._shared.drop_left)
        names = self._conversations.names()
        self._seen = {name: self._seen[name] for name in names if name in self._seen}
        num_failed = 0
        for name in names:
            try:
                head = self._conversations.head(name)
                if head.group is not None and self._seen.get(name) is not head:
                    await self._publish(name, head)
                self._seen[name] = head
            except (UnknownConversation, ConversationBusy):  # it is gone, or goes
                continue
            except Exception as error:
                is_known = isinstance(error, GliaError)
                _log.warning("%s is not published: %s", name, error, exc_info=not is_known)
                self._counters["group_publish_failed"] += 1
                num_failed += 1
        return num_failed

    async def _publish(self, name: str, head: Head) -> None:
        replay = await self._conversations.read(name)
        group = replay.head.group
        if group is None or self._shared.groups.keys(group) is None:  # it was left
            return
        tokens = bytes(replay.tokens[: TOKEN_BYTES * replay.head.num_shared])
        get, tips = self._memory.records.get_now, replay.head.tips[::-1]
        find = partial(shared_windows, tips, tokens, group, get)
        async with self._still:
            if not self._shows(name, group, replay.head.num_shared):
                return
            records = await trio.to_thread.run_sync(find)
            if not records:
                return
            await self._memory.flush([record.window_id for record in records])
            put = partial(self._put, group, records, tokens, self._memory.table.names())
            self.on_publish(await trio.to_thread.run_sync(put))

    def _shows(self, name: str, group: GroupId, num_shared: int) -> bool:
        """Whether it still shows what it did when it was read."""
        if name not in self._conversations:
            return False
        head = self._conversations.head(name)
        return head.group == group and head.num_shared >= num_shared

    # -- in a worker thread -------------------------------------------------------------------

    def _put(
        self,
        group: GroupId,
        records: Sequence[WindowRecord],
        tokens: bytes,
        in_l1: Iterable[WindowId],
    ) -> GroupPart:
        """Publish what is new. Raises: NotFound, StoreBroken, StoreFull."""
        domains = self._memory.domains
        hold_until_s = held_until_s(self._now_s(), self._hold_s)
        part = group_part(group, records, tokens, self._shared.vault, domains.salted, hold_until_s)
        new = [row for row in part.rows() if self._index.window(group, row.name) is None]
        if not new:
            return part
        self._published.foreign.doubt(lambda: (*in_l1, *self._memory.store.windows()))
        signed = self._signed(part)
        links = [row for link in (*signed, *self._heard(part)) for row in self._rows(part, link)]
        self._index.put(group, new, links)
        self._counters["group_windows_published"] += len(new)
        self._counters["group_links_signed"] += len(signed)
        return part

    def _signed(self, part: GroupPart) -> list[Link]:
        """What this node has computed of it, and has not signed yet."""
        flags = self._published.foreign.flags([record.window_id for record in part.records])
        at = part.base.num_windows
        num_before = max((at + num for num, flag in enumerate(flags, 1) if flag), default=0)
        name_of = {each.record.window_id: each.name for each in part.sealed}
        said = [
            claim
            for claim in claims(part.records, num_before, part.base)
            if claim.num_before
            not in (link.num_before for link in self._index.links(part.group, name_of[claim.tip]))
        ]
        time_s = int(self._now_s())
        first = max(self._published.last_sequence(self._signer.neuron) + 1, time_s)
        return [
            sign_link(self._signer, claim, sequence, time_s)
            for sequence, claim in enumerate(said, first)
        ]

    def _heard(self, part: GroupPart) -> list[Link]:
        """What others said of it."""
        return [link for each in part.records for link in self._learned.get(each.window_id, ())]

    def _rows(self, part: GroupPart, link: Link) -> list[tuple[WindowId, GroupLink]]:
        """A link, with each window that it attests."""
        at = part.base.num_windows
        start, end = link.claim.num_before - at, link.claim.num_windows - at
        if not 0 <= start < end <= len(part.sealed):
            return []
        attested = part.sealed[start:end]
        sealed = seal_link(attested[-1].epoch, link)
        row = GroupLink(link.claim.num_before, attested[0].window.prev, sealed)
        return [(each.name, row) for each in attested]
