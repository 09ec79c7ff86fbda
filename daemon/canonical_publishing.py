"""A conversation's first tokens computed anew in float64, and that shown to peers.

The conversation stays what it is: its own K/V, its tip and its labels. The canonical windows
have its tokens, so they are kept and forgotten with it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from daemon.attachments import Attachments
from daemon.binding import Binding
from daemon.broker import Broker
from daemon.conversations import Conversations
from daemon.link import Deliver
from daemon.memory import Memory
from daemon.models_registry import ModelsRegistry
from daemon.publisher import Publisher, Visible
from glia.errors import StoreFull
from glia.graph.conversation import Begin
from glia.graph.ids import WindowId
from glia.graph.manifest import CANONICAL_DTYPE
from glia.graph.tokens import TOKEN_BYTES, unpack_tokens
from glia.local.messages import Generate
from glia.local.values import SamplingValue


@dataclass(frozen=True, slots=True)
class Computed:
    """What publishing canonically costs.

    Attributes:
        visible: what of the tokens peers can see, or could.
        num_tokens: so many were computed, or would be.
        took_s: what that took or is expected to take; None where nobody knows yet.
    """

    visible: Visible
    num_tokens: int
    took_s: float | None


class CanonicalPublishing:
    """The one that does it."""

    def __init__(
        self,
        publisher: Publisher,
        broker: Broker,
        conversations: Conversations,
        attachments: Attachments,
        registry: ModelsRegistry,
        memory: Memory,
    ) -> None:
        self._publisher, self._broker = publisher, broker
        self._conversations, self._attachments = conversations, attachments
        self._registry, self._memory = registry, memory

    async def publish(
        self, name: str, num_tokens: int | None, call_id: int, deliver: Deliver, *, dry: bool
    ) -> Computed:
        """As Publisher.publish, of windows that are computed for it. Nobody else is at the
        conversation meanwhile.

        Args: deliver: hears how far it is.
        Raises: as Publisher.publish, and as Broker.compute; StoreFull where what was computed
            could not be kept.
        """
        with self._conversations.hold(name, "is being published"):
            head, packed = await self._publisher.read(name, num_tokens, at_it=True)
            model = await trio.to_thread.run_sync(self._registry.get, head.begin.model)
            size = model.manifest.block_size
            if head.group is not None:  # what is the group's has no names that others compute
                packed = packed[: TOKEN_BYTES * head.num_public]
            tokens = unpack_tokens(packed)
            whole = tokens[: len(tokens) // size * size]
            if dry:
                return await self._expected(name, head.begin, packed, whole, size)
            if not whole:
                return Computed(Visible(len(tokens), size, 0, 0), 0, 0.0)
            started_s = time.monotonic()
            call = Generate(
                call_id, model.name, CANONICAL_DTYPE, list(whole), 1, SamplingValue(), [], [], True
            )
            done = await self._broker.compute(call, head.begin.model_id, deliver)
            took_s = time.monotonic() - started_s
            if done.tip is None:
                raise StoreFull(done.warning or "what was computed could not be kept")
            shown = await self._publisher.show(name, packed, [WindowId(done.tip)], dry=False)
            return Computed(shown, done.usage.computed, took_s)

    async def _expected(
        self, name: str, begin: Begin, packed: bytes, whole: Sequence[int], size: int
    ) -> Computed:
        """What it would be."""
        known = self._attachments.last(begin.model, CANONICAL_DTYPE)
        binding = known.binding if known is not None and known.model_id == begin.model_id else None
        num_here = num_published = 0
        if binding is not None and (chain := await self._memory.longest(binding, whole)):
            num_here = len(chain) * size
            tips = [chain[-1].window_id]
            shown = await self._publisher.show(name, packed, tips, dry=True)
            num_published = shown.num_windows - shown.num_new
        num_windows, num_missing = len(whole) // size, len(whole) - num_here
        visible = Visible(
            len(unpack_tokens(packed)), size, num_windows, num_windows - num_published
        )
        return Computed(visible, num_missing, self._seconds(binding, num_missing))

    def _seconds(self, binding: Binding | None, num_tokens: int) -> float | None:
        if not num_tokens:
            return 0.0
        return None if binding is None else self._broker.prefill_s(binding, num_tokens)
