"""Topics: a message goes from member to connected member, once to each, and may be lost."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from glia.errors import BadRequest
from p2p.host import MAX_MESSAGE_BYTES, PeerId

_log = logging.getLogger("gliad.p2p.testing")


class SimGossip:
    """One host's topics.

    Args:
        spread: tell the members of a topic, each when word reaches it.
        note: where events go.
    """

    def __init__(self, spread: Callable[[str, bytes], None], note: Callable[..., None]) -> None:
        self._spread, self._note = spread, note
        self._takers: dict[str, Callable[[PeerId, bytes], None]] = {}

    def join(self, topic: str, take: Callable[[PeerId, bytes], None]) -> None:
        self._takers[topic] = take

    def leave(self, topic: str) -> None:
        self._takers.pop(topic, None)

    async def publish(self, topic: str, message: bytes) -> None:
        if len(message) > MAX_MESSAGE_BYTES:
            raise BadRequest(f"a message has at most {MAX_MESSAGE_BYTES} bytes")
        await trio.lowlevel.checkpoint()
        self._note("publish", topic, len(message))
        self._spread(topic, message)

    def is_member(self, topic: str) -> bool:
        return topic in self._takers

    def deliver(self, topic: str, sender: PeerId, message: bytes) -> None:
        """Hand a message to who joined, if it has not left in the meantime."""
        take = self._takers.get(topic)
        if take is None:
            return
        self._note("gossip", topic, sender, len(message))
        try:
            take(sender, message)
        except Exception:
            _log.exception("a reader of topic %s failed", topic)
