"""What is shown to peers of a conversation: more, canonically computed, or nothing any more."""

from __future__ import annotations

from daemon.canonical_publishing import CanonicalPublishing, Computed
from daemon.link import Deliver
from daemon.parts import Parts
from daemon.publishing import Publishing
from glia.local.messages import Publish, PublishReply, Reply, Withdraw, WithdrawReply


async def answer(parts: Parts, shown: Publishing, call: Publish | Withdraw, post: Deliver) -> Reply:
    """Raises: as Withdrawing.withdraw, Publisher.publish and CanonicalPublishing.publish;
    ConversationMoved: who has it publishes it."""
    if isinstance(call, Withdraw):
        gone = await shown.withdraw(call.name)
        return WithdrawReply(call.id, gone.num_windows, gone.num_continued)
    parts.conversations.check_here(parts.conversations.head(call.name).begin)
    done = await _publish(parts, shown, call, post)
    now = done.visible
    return PublishReply(
        call.id,
        now.num_tokens,
        now.block_size,
        now.num_windows,
        now.num_new,
        shown.hold_s,
        done.num_tokens,
        done.took_s,
    )


async def _publish(parts: Parts, shown: Publishing, call: Publish, post: Deliver) -> Computed:
    if not call.canonical:
        now = await shown.publisher.publish(call.name, call.num_tokens, dry=call.dry)
        return Computed(now, 0, 0.0)
    anew = CanonicalPublishing(
        shown.publisher,
        parts.broker,
        parts.conversations,
        parts.attachments,
        parts.registry,
        parts.memory,
    )
    return await anew.publish(call.name, call.num_tokens, call.id, post, dry=call.dry)
