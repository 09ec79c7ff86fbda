"""Messages about conversations: listing, reading, forking, forgetting."""

from __future__ import annotations

from glia.local.messages.base import Call, Reply
from glia.local.values import ConversationValue, Count, Label, MessageValue


class Conversations(Call, frozen=True):
    """All conversations, last used first, a part at a time from number `start` on."""

    start: Count = 0


class ConversationsReply(Reply, frozen=True):
    conversations: list[ConversationValue]
    total: int


class ReadConversation(Call, frozen=True):
    """One conversation: a part of its messages and of its tokens; ask on until the totals."""

    name: Label
    message_start: Count = 0
    token_start: Count = 0


class ConversationReply(Reply, frozen=True):
    """`tokens`: u32 little-endian each; totals are in `conversation`."""

    conversation: ConversationValue
    messages: list[MessageValue]
    tokens: bytes


class Fork(Call, frozen=True):
    """Make `new` a conversation with the first `num_tokens` tokens of `name` (None: all).

    Nothing is copied but the log. Reply: ConversationReply without messages and tokens.
    """

    name: Label
    new: Label
    num_tokens: Count | None = None


class Forget(Call, frozen=True):
    """Remove a conversation and every byte that nothing else uses. Events: Progress."""

    name: Label


class ForgetReply(Reply, frozen=True):
    """Windows removed and their bytes; windows kept.

    num_shared: windows that other conversations use.
    num_published: windows that are published for good: peers may have been told of them.
    """

    num_windows: int
    freed_bytes: int
    num_shared: int
    num_published: int = 0


class Gc(Call, frozen=True):
    """Forget what has expired, drop windows whose chain has a hole, compact. Events: Progress.

    unreferenced: also drop the windows that no conversation uses.
    """

    unreferenced: bool = False


class GcReply(Reply, frozen=True):
    num_conversations: int
    num_windows: int
    freed_bytes: int
