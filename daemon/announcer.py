"""Tells the network what is published: the DHT at announce boundaries, and the model's topic.

What it says: that this node has a prefix key, and a window; and the link that attests it. It says
so only while the window's blocks are here: some windows are published by name alone, and L2 may
have dropped others.

At each announcement of a chain's last window its copies among peers are counted
(daemon/copies.py).
When it says so: p2p/announcing.py. It also hears what others say on the topics of the models
that this node has to do with.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial
from itertools import takewhile
from typing import Protocol

import trio

from daemon.copies import Copies
from daemon.hearing import Hearing
from glia.errors import GliaError
from glia.graph.boundaries import announced, boundaries
from glia.graph.ids import ModelId, WindowId
from glia.graph.link import decode_link
from glia.graph.neuron import Signer
from glia.store.published import Published
from glia.store.published_rows import PublishedWindow
from p2p.announcing import Announcing, Boundary, topic_of
from p2p.host import Directory, Gossip, Host
from p2p.provider import InThreads, RunBlocking

_MAX_AT_ONCE = 4
_LIMIT_S = 60.0  # for one boundary
_LOOK_S = 60.0  # what is relayed is published without a word
_log = logging.getLogger("gliad.announcer")


class _Standing(Enum):
    """What there is to be said of a boundary."""

    HERE = auto()
    ABSENT = auto()
    OVER = auto()


class Network(Protocol):
    """What it needs of daemon.peering.Peering."""

    published: Published
    signer: Signer
    counters: Counter[str]
    why_off: str

    @property
    def host(self) -> Host: ...

    @property
    def directory(self) -> Directory: ...

    @property
    def gossip(self) -> Gossip: ...


class Announcer:
    """The one that announces.

    Args:
        is_here: whether the blocks of a published window are (Egress.has_window).
        models: those that this node can compute.
        keep, replicas: as Copies has them.
        is_silent: it only follows what others say.
        now_s: seconds since 1970.
        source: of all that is drawn.
        call: how the published index is called.
    """

    def __init__(
        self,
        network: Network,
        hearing: Hearing,
        is_here: Callable[[WindowId], bool],
        models: Callable[[], Iterable[ModelId]],
        source: random.Random,
        *,
        keep: Callable[[WindowId], None],
        replicas: int,
        is_silent: bool = False,
        now_s: Callable[[], float] = time.time,
        call: RunBlocking | None = None,
    ) -> None:
        self._network, self._hearing = network, hearing
        self._is_here, self._models, self._now_s = is_here, models, now_s
        self._call = call or InThreads()
        self._announcing = Announcing(source)
        self._copies = Copies(network, replicas, keep, self._call)
        self._is_silent = is_silent
        self._tips: dict[WindowId, ModelId] = {}
        self._room = trio.Semaphore(_MAX_AT_ONCE)
        self._look_now, self._tell_now = trio.Event(), trio.Event()

    def wake(self) -> None:
        """More is published, there is a model more, or a network again."""
        self._look_now.set()

    async def run(self) -> None:
        """Announce, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_often)
            while True:
                self._tell_now = trio.Event()
                while boundary := self._next():
                    await self._room.acquire()
                    nursery.start_soon(self._announce, boundary)
                wait_s = self._announcing.wait_s(self._now_s())
                with trio.move_on_after(_LOOK_S if self._network.why_off else wait_s):
                    await self._tell_now.wait()

    def _next(self) -> Boundary | None:
        now_s = self._now_s()
        self._network.counters["announce_backlog"] = self._announcing.backlog(now_s)
        return None if self._network.why_off else self._announcing.next(now_s)

    async def _look_often(self) -> None:
        while True:
            self._look_now = trio.Event()
            try:
                new = await self._call(self._new_boundaries)
            except GliaError as error:
                _log.warning("what is published cannot be read: %s", error)
            else:
                self._announcing.add([] if self._is_silent else new, self._now_s())
                self._hearing.follow([*self._models(), *self._tips.values()])
            self._tell_now.set()
            with trio.move_on_after(_LOOK_S):
                await self._look_now.wait()

    async def _announce(self, boundary: Boundary) -> None:
        try:
            with trio.fail_after(_LIMIT_S):
                standing = await self._tell(boundary)
        except (GliaError, trio.TooSlowError) as error:
            _log.debug("not announced: %r", error)
            self._failed(boundary)
        except Exception:
            _log.exception("not announced")
            self._failed(boundary)
        else:
            self._settle(boundary, standing)
        finally:
            self._room.release()
            self._tell_now.set()

    def _settle(self, boundary: Boundary, standing: _Standing) -> None:
        match standing:
            case _Standing.HERE:
                self._network.counters["announced"] += 1
                self._announcing.done(boundary, self._now_s())
            case _Standing.ABSENT:
                self._announcing.absent(boundary, self._now_s())
            case _Standing.OVER:
                self._announcing.drop(boundary)
        if standing is not _Standing.HERE:
            self._copies.leave(boundary.window_id)

    def _failed(self, boundary: Boundary) -> None:
        self._network.counters["announce_failed"] += 1
        self._announcing.failed(boundary, self._now_s())

    async def _tell(self, boundary: Boundary) -> _Standing:
        """Tell of it if it is here. Raises: GliaError."""
        published, name = self._network.published, boundary.window_id
        standing = await self._call(partial(self._standing, boundary))
        if standing is not _Standing.HERE:
            return standing
        link = await self._call(partial(self._link_to, name))
        directory = self._network.directory
        await directory.provide(boundary.prefix_key)
        await directory.provide(name)
        if link is not None:
            await directory.put(boundary.prefix_key, link)
            await self._network.gossip.publish(topic_of(boundary.model_id), link)
        await self._call(partial(published.mark_announced, [name], int(self._now_s())))
        if await self._call(partial(published.next_windows, name, 1)):
            self._copies.leave(name)
        else:
            await self._copies.count(name)
        return standing

    # -- in worker threads --------------------------------------------------------------------

    def _new_boundaries(self) -> list[Boundary]:
        """Of the tips that came since. Raises: StoreBroken."""
        tips = {tip.window_id: tip for tip in self._network.published.tips()}
        known = {name: model for name, model in self._tips.items() if name in tips}
        found = []
        for name in tips.keys() - known.keys():
            known[name] = tips[name].record().model_id
            found += self._boundaries(tips[name], known[name])
        self._tips = known
        return found

    def _boundaries(self, tip: PublishedWindow, model_id: ModelId) -> list[Boundary]:
        """Those of a chain, but for what it had when it ended in a tip that is known."""
        published, counts = self._network.published, set(announced(tip.num_windows))
        here = takewhile(lambda row: row.window_id not in self._tips, published.back(tip))
        rows = [row for row in here if row.num_windows in counts]
        times = published.announced_s([row.window_id for row in rows])
        return [
            Boundary(
                window_id=row.window_id,
                prefix_key=row.prefix_key,
                model_id=model_id,
                num_windows=row.num_windows,
                hold_until_s=row.hold_until_s,
                announced_s=at_s,
            )
            for row, at_s in zip(rows, times, strict=True)
        ]

    def _standing(self, boundary: Boundary) -> _Standing:
        """Over where it is published no more, or was a chain's last window and is so no more."""
        published, name = self._network.published, boundary.window_id
        if published.record(name) is None:
            return _Standing.OVER
        is_steady = boundary.num_windows in boundaries(boundary.num_windows)
        if not is_steady and published.next_windows(name):
            return _Standing.OVER
        return _Standing.HERE if self._is_here(name) else _Standing.ABSENT

    def _link_to(self, window_id: WindowId) -> bytes | None:
        """That ends in a window: this node's own, else another's."""
        links = [decode_link(data) for data in self._network.published.links(window_id)]
        ours = self._network.signer.neuron
        found = [link for link in links if link.claim.tip == window_id]
        found.sort(key=lambda link: link.signer != ours)
        return found[0].encoding if found else None
