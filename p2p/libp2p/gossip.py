"""The port's topics on gossipsub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from glia.errors import BadRequest
from p2p.host import MAX_MESSAGE_BYTES
from p2p.libp2p.caps import MAX_TOPIC_BYTES
from p2p.libp2p.pubsub import PREFIX, GuardedPubsub, Take


class LibP2PGossip:
    """Keeps `p2p.host.Gossip`. On the wire each topic's name begins with PREFIX.

    Args:
        start: runs something beside, which may fail.
    """

    def __init__(
        self, pubsub: GuardedPubsub, start: Callable[[Callable[[], Awaitable[None]]], None]
    ) -> None:
        self._pubsub, self._start = pubsub, start

    def join(self, topic: str, take: Take) -> None:
        name = _name(topic)
        is_new = name not in self._pubsub.takers
        self._pubsub.takers[name] = take
        if is_new:
            self._start(lambda: self._follow(name))

    def leave(self, topic: str) -> None:
        name = _name(topic)
        if self._pubsub.takers.pop(name, None) is not None:
            self._start(lambda: self._follow(name))

    async def _follow(self, name: str) -> None:
        """Tell the peers what is so now: it may have been joined and left since."""
        if name in self._pubsub.takers:
            await self._pubsub.subscribe(name)
        else:
            await self._pubsub.unsubscribe(name)

    async def publish(self, topic: str, message: bytes) -> None:
        if len(message) > MAX_MESSAGE_BYTES:
            raise BadRequest(f"a message has at most {MAX_MESSAGE_BYTES} bytes")
        await self._pubsub.publish(_name(topic), message)


def _name(topic: str) -> str:
    """Raises: BadRequest."""
    name = PREFIX + topic
    if len(name.encode()) > MAX_TOPIC_BYTES:
        raise BadRequest("the name of a topic is too long")
    return name
