"""What others say on the topics of models: links, which are kept as hints (glia/store/heard.py).

Who said so is a hint, too: whom to ask for the prompts that a link is about (p2p/hints.py).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import trio

from glia.errors import GliaError, MalformedParticle
from glia.graph.ids import ModelId
from glia.graph.link import Link, accept_link
from glia.graph.neuron import NeuronId
from glia.store.heard import Heard
from p2p.announcing import topic_of
from p2p.hints import Hints
from p2p.host import Gossip, PeerId

_MAX_TOPICS = 64  # as peers take so many of one (p2p/libp2p/caps.py)
_MAX_WAITING = 256  # messages
_log = logging.getLogger("gliad.hearing")

_Said = tuple[ModelId, PeerId, bytes]


class Believing(Protocol):
    """What it needs of daemon.believing.Believing."""

    def takes(self) -> Callable[[NeuronId], bool]: ...


class Network(Protocol):
    """What it needs of daemon.peering.Peering."""

    heard: Heard
    hints: Hints
    counters: Counter[str]
    why_off: str

    @property
    def gossip(self) -> Gossip: ...

    @property
    def believing(self) -> Believing: ...


class Hearing:
    """The one that listens. Args: now_s: seconds since 1970."""

    def __init__(self, network: Network, now_s: Callable[[], float] = time.time) -> None:
        self._network, self._now_s = network, now_s
        self._models: dict[ModelId, None] = {}
        self._send, self._receive = trio.open_memory_channel[_Said](_MAX_WAITING)

    def follow(self, models: Iterable[ModelId]) -> None:
        """Be in the topics of these, too: of the first so many, while there is a network."""
        for model_id in models:
            if model_id not in self._models and len(self._models) < _MAX_TOPICS:
                self._models[model_id] = None
                if not self._network.why_off:
                    self._join(model_id)

    def join_again(self) -> None:
        """There is a network, on new ports."""
        for model_id in self._models:
            self._join(model_id)

    async def run(self) -> None:
        """Keep what is said, for ever."""
        async for first in self._receive:
            said = [first]
            while self._receive.statistics().current_buffer_used:
                said.append(self._receive.receive_nowait())
            try:
                for peer, link in await trio.to_thread.run_sync(
                    self._keep, said, self._network.believing.takes()
                ):
                    self._network.hints.said(peer, link.claim.prefix_key)
            except GliaError as error:
                self._network.counters["gossip_failed"] += 1
                _log.warning("what others say is not kept: %s", error)

    def _join(self, model_id: ModelId) -> None:
        take = partial(self._take, model_id)
        try:
            self._network.gossip.join(topic_of(model_id), take)
        except Exception as error:  # ports that just ended; those to come are joined
            _log.warning("a topic is not joined: %r", error)

    def _take(self, model_id: ModelId, peer: PeerId, message: bytes) -> None:
        try:
            self._send.send_nowait((model_id, peer, message))
        except trio.WouldBlock:
            self._network.counters["gossip_dropped"] += 1

    def _keep(
        self, said: Sequence[_Said], takes: Callable[[NeuronId], bool]
    ) -> list[tuple[PeerId, Link]]:
        """For a worker thread. Returns: what is valid of it. Raises: StoreBroken, StoreFull."""
        found = []
        for model_id, peer, message in said:
            try:
                link = accept_link(message, self._now_s())
            except MalformedParticle:
                self._network.counters["gossip_refused"] += 1
                continue
            if link.claim.model_id != model_id:
                self._network.counters["gossip_refused"] += 1
                continue
            found.append((peer, link))
            if self._network.heard.add(link, is_taken=takes(link.signer)):
                self._network.counters["links_heard"] += 1
        return found
