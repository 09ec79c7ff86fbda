"""Tells the directory what groups are shown here: under aliases, which only members can look for.

Of a chain at its announce boundaries, under the newest epoch's aliases of their prefix keys, and
nothing else: no window, no link, and on no topic.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

import trio

from daemon.announcer import Network
from daemon.domains import epochs_of
from daemon.group_part import GroupPart
from daemon.shared import Shared
from glia.errors import GliaError
from glia.graph.boundaries import announced, boundaries
from glia.graph.encrypted import alias_of
from glia.graph.group import GroupId
from glia.graph.ids import WindowId
from glia.store.group_rows import GroupWindow
from p2p.announcing import Announcing, Boundary
from p2p.provider import InThreads, RunBlocking

_LIMIT_S = 60.0  # for one boundary
_LOOK_S = 60.0
_MAX_BOUNDARIES = 16_384  # that are announced again and again; the oldest go
_log = logging.getLogger("gliad.group_announcer")


class GroupAnnouncer:
    """The one that announces. What there is to say it is told after each start.

    Args:
        source: of all that is drawn.
        now_s: seconds since 1970.
        call: how the index is called.
    """

    def __init__(
        self,
        network: Network,
        shared: Shared,
        source: random.Random,
        *,
        is_silent: bool = False,
        now_s: Callable[[], float] = time.time,
        call: RunBlocking | None = None,
    ) -> None:
        self._network, self._shared, self._source = network, shared, source
        self._is_silent, self._now_s, self._call = is_silent, now_s, call or InThreads(1)
        self._announcing = Announcing(source)
        self._known: dict[WindowId, tuple[GroupId, Boundary]] = {}
        self._epochs: dict[GroupId, bytes] = {}
        self._changed = trio.Event()

    def wake(self) -> None:
        """There is a network again."""
        self._changed.set()

    def add(self, part: GroupPart) -> None:
        """This is shown."""
        if self._is_silent:
            return
        first, num = part.base.num_windows, part.base.num_windows + len(part.sealed)
        for count in announced(num):
            if count <= first or part.sealed[count - first - 1].name in self._known:
                continue
            at = count - first - 1
            boundary = Boundary(
                window_id=part.sealed[at].name,
                prefix_key=part.keys[at],
                model_id=part.records[at].model_id,
                num_windows=count,
                hold_until_s=part.hold_until_s,
                announced_s=0,
            )
            self._known[boundary.window_id] = part.group, boundary
            self._announcing.add([boundary], self._now_s())
        self._grown()

    def add_kept(self, group: GroupId, rows: Sequence[GroupWindow]) -> None:
        """The same of what is kept without a key: under the aliases that were told with it."""
        if self._is_silent:
            return
        for row in rows:
            boundary = Boundary(
                window_id=row.name,
                prefix_key=row.alias,
                model_id=row.model_id,
                num_windows=row.num_windows,
                hold_until_s=row.hold_until_s,
                announced_s=0,
            )
            self._known[row.name] = group, boundary
            self._announcing.add([boundary], self._now_s())
        self._grown()

    def _grown(self) -> None:
        while len(self._known) > _MAX_BOUNDARIES:
            del self._known[next(iter(self._known))]
        self._changed.set()

    async def run(self) -> None:
        """Announce, for ever."""
        while True:
            self._changed = trio.Event()
            self._follow_epochs()
            while (boundary := self._next()) is not None:
                await self._announce(boundary)
            wait_s = min(_LOOK_S, self._announcing.wait_s(self._now_s()))
            with trio.move_on_after(wait_s):
                await self._changed.wait()

    def _next(self) -> Boundary | None:
        return None if self._network.why_off else self._announcing.next(self._now_s())

    def _follow_epochs(self) -> None:
        """All is said anew in a new epoch: nobody looks for aliases of the last one."""
        epochs = {group: each[-1].epoch_id for group, each in epochs_of(self._shared.groups)}
        if any(epochs.get(group) != known for group, known in self._epochs.items()):
            self._announcing = Announcing(self._source)
            self._announcing.add([each for _, each in self._known.values()], self._now_s())
        self._epochs = dict(epochs)

    async def _announce(self, boundary: Boundary) -> None:
        now_s, counters = self._now_s, self._network.counters
        try:
            with trio.fail_after(_LIMIT_S):
                is_told = await self._tell(boundary)
        except (GliaError, trio.TooSlowError) as error:
            _log.debug("not announced: %r", error)
            counters["group_announce_failed"] += 1
            self._announcing.failed(boundary, now_s())
            return
        if is_told:
            counters["group_announced"] += 1
            self._announcing.done(boundary, now_s())
        else:
            self._known.pop(boundary.window_id, None)
            self._announcing.drop(boundary)

    async def _tell(self, boundary: Boundary) -> bool:
        """Whether it was to be told of. Raises: GliaError."""
        group, _ = self._known.get(boundary.window_id, (None, boundary))
        keys = None if group is None else self._shared.groups.keys(group)
        if group is None:
            return False
        if not await self._call(partial(self._is_steady, group, boundary)):
            return False
        name = boundary.prefix_key
        alias = name if keys is None else alias_of(keys.epochs[-1], name)
        await self._network.directory.provide(alias)
        return True

    def _is_steady(self, group: GroupId, boundary: Boundary) -> bool:
        """Whether a window is here, and a boundary, or its chain's last."""
        shared, name = self._shared, boundary.window_id
        is_boundary = boundary.num_windows in boundaries(boundary.num_windows)
        is_one = is_boundary or not shared.index.is_continued(group, name)
        return is_one and shared.is_here(group, name)
