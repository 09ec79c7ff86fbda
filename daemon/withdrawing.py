"""A conversation is shown to peers no longer: it becomes private, and its windows are taken back.

That is told to nobody: what peers took stays with them, and where it was announced the
directory names this node until it forgets. What other conversations show, too, the publisher
publishes again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import trio

from daemon.attachments import Attachments
from daemon.conversations import Conversations
from daemon.reach import keys_ever
from daemon.shared import Shared
from glia.errors import UnknownConversation
from glia.graph.conversation import Replay, Turn
from glia.graph.ids import ModelId, WindowId
from glia.graph.privacy import Visibility
from glia.graph.tokens import unpack_tokens
from glia.store.published import Published

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Windows that are published no longer; those that stay, as published ones continue them."""

    num_windows: int
    num_continued: int


class Withdrawing:
    """The one that withdraws.

    Args:
        still: held by whoever forgets windows or publishes them.
        shared: what groups are shown.
        now_s: seconds since 1970.
    """

    def __init__(
        self,
        conversations: Conversations,
        attachments: Attachments,
        published: Published,
        still: trio.Lock,
        shared: Shared,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._conversations, self._attachments = conversations, attachments
        self._published, self._still, self._now_s = published, still, now_s
        self._shared = shared

    async def withdraw(self, name: str) -> Withdrawn:
        """Show all that a conversation ever said no longer; where it is cut short, ask again.

        Raises: UnknownConversation, ConversationBusy, StoreBroken, StoreFull, QuotaExceeded.
        """
        with self._conversations.hold(name, "is being withdrawn"):
            if name not in self._conversations:
                raise UnknownConversation(f"{name} was forgotten", hint="gliad conversations")
            replay = await self._conversations.read(name, at_it=True)
            turns = self._conversations.past([name], at_them=True)
            async with self._still:
                if replay.head.num_public or replay.head.group is not None:
                    await self._make_private(name, replay)
                model_id = replay.head.begin.model_id
                return await trio.to_thread.run_sync(
                    lambda: self._take_back(model_id, turns.turns(name))
                )

    async def _make_private(self, name: str, replay: Replay) -> None:
        """Its log once more, so labelled: first, else the publisher would publish it again."""
        turn = Turn(
            used_us=max(replay.head.used_us, int(self._now_s() * _SECOND_US)),
            keep=0,
            tokens=unpack_tokens(bytes(replay.tokens)),
            messages=tuple(replace(m, visibility=Visibility.PRIVATE) for m in replay.messages),
            tip=replay.head.tip,
        )
        replay.cut(0)
        await self._conversations.append(name, replay.head.extended(turn), turn)

    def _take_back(self, model_id: ModelId, turns: tuple[Turn, ...]) -> Withdrawn:
        """For a worker thread. Raises: StoreBroken, StoreFull."""
        layouts = self._attachments.layouts(model_id)
        keys = keys_ever(model_id, layouts, turns)
        shown: set[WindowId] = set()
        for name in self._published.named(list(keys)):
            while name not in shown and (row := self._published.window(name)) is not None:
                shown.add(name)
                name = row.record().prev
        gone = self._published.take_back(shown)
        of_groups, gone_of_groups = self._shared.take_back(model_id, layouts, turns)
        num_gone = len(gone) + gone_of_groups
        return Withdrawn(num_gone, len(shown) + of_groups - num_gone)
