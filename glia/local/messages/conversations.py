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
    was_damaged: something of its file could not be read; windows that only that named stay.
    """

    num_windows: int
    freed_bytes: int
    num_shared: int
    num_published: int = 0
    was_damaged: bool = False


class Publish(Call, frozen=True):
    """Show peers the first tokens of a conversation, whatever their labels say.

    Failed `network` where the node is offline.

    num_tokens: None: all that there are now.
    dry: only say what would be.
    canonical: compute them anew in float64, and show that.
    """

    name: Label
    num_tokens: Count | None = None
    dry: bool = False
    canonical: bool = False


class PublishReply(Reply, frozen=True):
    """What peers can see of these tokens now, or could.

    num_tokens: so many there are.
    block_size: tokens of a window, 0 where no window of theirs is here.
    num_windows: whole windows that are here; num_new: of these were not visible before.
    hold_s: so long none of the new ones is announced, None: for ever; who asks is answered.
    num_computed: tokens that were computed for that, or would be, in float64.
    compute_s: so long that took, or is expected to take; None: not known before it was done once.
    """

    num_tokens: int
    block_size: int
    num_windows: int
    num_new: int
    hold_s: float | None
    num_computed: int = 0
    compute_s: float | None = 0.0


class Withdraw(Call, frozen=True):
    """Show peers a conversation no longer; from now on all it says is private.

    Failed `network` where the node is offline. What peers took stays with them.
    """

    name: Label


class WithdrawReply(Reply, frozen=True):
    """Windows that are shown no longer; those that stay, as others that are shown continue them."""

    num_windows: int
    num_continued: int


class Gc(Call, frozen=True):
    """Forget what has expired, drop windows whose chain has a hole, compact. Events: Progress.

    unreferenced: also drop the windows that no conversation uses.
    """

    unreferenced: bool = False


class GcReply(Reply, frozen=True):
    num_conversations: int
    num_windows: int
    freed_bytes: int
