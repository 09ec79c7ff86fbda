"""Asks peers who has the longest prefix: known ones first, then those of the directory.

Several at once, until one covers everything or time is up. A peer that did not answer in
time is said to be unheard: that it has nothing is known of those only that said so.

Anybody may be in the directory under any key: so more are taken from it than could be asked
at once, and who of them is asked first is drawn (p2p/choosing.py).
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from glia.errors import (
    BadRequest,
    HashMismatch,
    MalformedParticle,
    NetworkError,
    NotFound,
    PeerUnreachable,
    RemoteProtocolError,
)
from glia.graph.boundaries import boundaries
from glia.graph.ids import WindowId
from p2p.asking import Asking, Asks, Keys
from p2p.choosing import in_drawn_order
from p2p.host import Directory, Found, PeerId, Stream
from p2p.linking import ask_on, is_cut
from p2p.messages import FoundChain
from p2p.search import PATIENCE_S, Answer, Search
from p2p.walking import Question, Walk, record_bytes

RECORDS_BUDGET_BYTES = 64 * 1024 * 1024  # of one chain's records
_NUM_BUDGETS = 4  # of all that are being walked, of which strangers leave one to the others
MAX_PROVIDERS = 128  # taken from the directory, of one key
_RESET_S = 1.0
_log = logging.getLogger("gliad.p2p.finding")

Check = Callable[[PeerId, FoundChain, Walk], Awaitable[bool]]
Windows = Callable[[], Awaitable[Sequence[tuple[int, WindowId]]]]  # with their number of windows


@dataclass(frozen=True)
class Roads:
    """How peers are reached.

    Attributes:
        open_stream: to a peer that speaks /glia/find/1. Raises: NetworkError.
        meet: makes a peer of the directory reachable; True where it was not. Raises:
            NetworkError, BadRequest.
        part: the opposite, of one that had nothing. Never raises.
        is_proven: whether a peer gave what it said to have, before.
        asks: what speaks to a peer over a stream of it.
    """

    open_stream: Callable[[PeerId], Awaitable[Stream]]
    directory: Directory | None = None
    meet: Callable[[Found], Awaitable[bool | None]] | None = None
    part: Callable[[PeerId], Awaitable[None]] | None = None
    is_proven: Callable[[PeerId], bool] = lambda _: False
    asks: Callable[[Stream], Asks] = Asking


@dataclass(frozen=True)
class Finding:
    """What a search gave. `unheard`: peers that were asked and did not answer in time."""

    answer: Answer | None
    unheard: frozenset[PeerId]


class Finder:
    """One search.

    Args:
        keys: what is asked for, (number of windows, prefix key), the shortest first.
        at_least: windows that are here: an answer is longer.
        check: whether a walked chain's links are accepted, as a peer gave them.
        tell_bad: hears who broke the rules. Never raises.
        windows: that others attest, of this prompt; never raises. Who has one of them is
            looked up in another place than who has its key.
        names: under which the directory is asked for the keys, where these are not said to it.
        source: draws whom of the directory to ask.
    """

    def __init__(
        self,
        question: Question,
        keys: Keys,
        roads: Roads,
        check: Check,
        tell_bad: Callable[[PeerId], None],
        nursery: trio.Nursery,
        *,
        at_least: int = 0,
        windows: Windows | None = None,
        names: Keys | None = None,
        source: random.Random | None = None,
    ) -> None:
        self._question, self._keys, self._roads = question, keys, roads
        self._check, self._tell_bad, self._nursery = check, tell_bad, nursery
        self._source = source or random.SystemRandom()
        self._search = Search(keys[-1][0], at_least, question.classes or (question.own_class,))
        announced = set(boundaries(keys[-1][0])) | {keys[-1][0]}
        self._windows = windows
        said = keys if names is None else names
        self._look_ups: list[tuple[int, bytes]] = [key for key in said if key[0] in announced]
        self._is_looking = False
        self._found: dict[PeerId, Found] = {}
        self._walking_bytes = 0  # the most that is held of chains not accepted yet
        self._is_first = True
        self._scopes: set[trio.CancelScope] = set()
        self._wake = trio.Event()

    async def run(self, known: Sequence[PeerId], timeout_s: float) -> Finding:
        """Ask these, in their order, and further ones, for so long. Never raises for a peer."""
        self._search.add(known)
        try:
            with trio.move_on_after(timeout_s):
                while not self._search.is_over:
                    self._ask_more()
                    if self._is_idle:
                        break
                    await self._changed()
        finally:
            for scope in self._scopes:
                scope.cancel()
        return Finding(self._search.result(), frozenset(self._search.unheard))

    @property
    def _is_idle(self) -> bool:
        return not (self._search.num_asked or self._is_looking)

    def _start(self, call: Callable[..., Awaitable[None]], *args: object) -> None:
        """In the nursery, until the search is over; also where that is so before it begins."""
        scope = trio.CancelScope()
        self._scopes.add(scope)
        self._nursery.start_soon(self._run, scope, call, *args)

    async def _run(
        self, scope: trio.CancelScope, call: Callable[..., Awaitable[None]], *args: object
    ) -> None:
        with scope:
            await call(*args)
        self._scopes.discard(scope)
        self._wake.set()

    def _ask_more(self) -> None:
        while (peer := self._search.next_peer(trio.current_time())) is not None:
            self._start(self._ask, peer, self._is_first)
            self._is_first = False
        if self._is_idle:
            self._look_up()

    async def _changed(self) -> None:
        self._wake = trio.Event()
        now_s = trio.current_time()
        until_s = self._search.until_s(now_s) if self._search.has_waiting else now_s + PATIENCE_S
        with trio.move_on_at(until_s) as patience:
            await self._wake.wait()
        if patience.cancelled_caught and not self._search.has_waiting:
            self._look_up()

    def _look_up(self) -> None:
        """Ask the directory for the longest that it was not asked for yet."""
        if self._roads.directory is None or self._is_looking or not self._look_ups:
            return
        num_windows, name = self._look_ups.pop()
        if num_windows <= self._search.num_windows:
            self._look_ups.clear()
            return
        self._is_looking = True
        self._start(self._ask_directory, self._roads.directory, name)

    async def _ask_directory(self, directory: Directory, name: bytes) -> None:
        windows, self._windows = self._windows, None
        try:
            if windows is not None:  # the longest last, its key behind its windows
                names = [*await windows(), *self._look_ups]
                self._look_ups = sorted(names, key=lambda each: each[0])
            providers = await directory.providers(name, MAX_PROVIDERS)
        except Exception:
            _log.exception("the directory failed")
        else:
            found = in_drawn_order(providers, self._source, self._roads.is_proven)
            self._found = {each.peer: each for each in found} | self._found
            self._search.add_strangers(each.peer for each in found)
        finally:
            self._is_looking = False

    async def _ask_stranger(self, found: Found) -> None:
        """One of the directory. Raises: NetworkError, BadRequest, as `Roads.meet`."""
        is_new = self._roads.meet is not None and bool(await self._roads.meet(found))
        try:
            await self._hear(found.peer, is_first=False)
        finally:
            if is_new and self._roads.part is not None and not self._search.has_some(found.peer):
                with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                    await self._roads.part(found.peer)

    async def _ask(self, peer: PeerId, is_first: bool) -> None:
        try:
            if peer in self._found:
                await self._ask_stranger(self._found[peer])
            else:
                await self._hear(peer, is_first)
        except (BadRequest, NetworkError) as error:
            _log.debug("asking %s: %s", peer, error)
            if isinstance(error, PeerUnreachable) and peer not in self._found:
                self._search.unreached(peer)
        except (HashMismatch, RemoteProtocolError) as error:
            _log.info("asking %s: %s", peer, error)
            self._tell_bad(peer)
        except Exception:
            _log.exception("asking %s failed", peer)
        finally:
            self._search.ended(peer)

    async def _hear(self, peer: PeerId, is_first: bool) -> None:
        """One request; the records come behind its answer where they were asked for."""
        async with self._asking(peer) as asking:
            chains = await asking.find(self._question, self._keys, want_records=is_first)
            worth = self._search.heard(peer, chains)
            if worth and (not is_first or worth[0] == chains[0]):
                chain = worth.pop(0)
                if await self._walked(asking, peer, chain, is_sent=is_first):
                    return
        for chain in worth:
            async with self._asking(peer) as asking:
                if await self._walked(asking, peer, chain, is_sent=False):
                    return

    async def _walked(
        self, asking: Asks, peer: PeerId, chain: FoundChain, *, is_sent: bool
    ) -> bool:
        """Whether a chain is there and is accepted."""
        size_bytes = chain.num_windows * record_bytes(self._question.profile)
        if not self._search.is_better(chain) or size_bytes > self._room_bytes(peer):
            return False
        self._walking_bytes += size_bytes
        try:
            walk = Walk(self._question, WindowId(chain.tip), chain.num_windows)
            await (asking.read_records(walk) if is_sent else asking.get_records(walk))
            chain = await self._with_all_links(peer, chain, walk)
            is_accepted = await self._check(peer, chain, walk)
        except (MalformedParticle, NotFound) as error:
            _log.debug("a chain of %s: %s", peer, error)
            return False
        finally:
            self._walking_bytes -= size_bytes
        if is_accepted:
            self._search.accept(peer, chain, walk)
        return is_accepted

    def _room_bytes(self, peer: PeerId) -> int:
        """For one chain more: many of the directory's may send, and stop short of the end."""
        num = _NUM_BUDGETS - (peer in self._found)
        return min(RECORDS_BUDGET_BYTES, num * RECORDS_BUDGET_BYTES - self._walking_bytes)

    async def _with_all_links(self, peer: PeerId, chain: FoundChain, walk: Walk) -> FoundChain:
        """Over a stream of its own: in the other there may be records that nobody needs."""
        tokens = self._question.tokens
        if tokens is None or not is_cut(chain, walk):
            return chain
        try:
            async with self._asking(peer) as asking:
                return await ask_on(asking, self._question, tokens, chain, walk)
        except NetworkError as error:
            _log.debug("asking %s for more links: %s", peer, error)
            return chain

    @asynccontextmanager
    async def _asking(self, peer: PeerId) -> AsyncIterator[Asks]:
        stream = await self._roads.open_stream(peer)
        try:
            yield self._roads.asks(stream)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()
