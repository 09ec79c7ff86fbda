"""Calls about conversations."""

from __future__ import annotations

from dataclasses import dataclass

from glia.client.caller import Caller, OnProgress
from glia.client.names import check_names
from glia.graph.tokens import TOKEN_BYTES, unpack_tokens
from glia.local import messages as m
from glia.local import values


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation read whole."""

    about: values.ConversationValue
    messages: tuple[values.MessageValue, ...]
    tokens: tuple[int, ...]


class ConversationCalls(Caller):
    """Listing, reading, forking, forgetting."""

    def conversations(self) -> list[values.ConversationValue]:
        """All conversations, last used first."""
        found: list[values.ConversationValue] = []
        while True:
            part = self._call(m.Conversations(self._id(), len(found)), m.ConversationsReply)
            found += part.conversations
            if len(found) >= part.total or not part.conversations:
                return found

    def conversation(self, name: str) -> Conversation:
        """One conversation with all its messages and tokens.

        Raises: UnknownConversation, BadRequest (nothing can be called so).
        """
        check_names(name)
        messages: list[values.MessageValue] = []
        tokens = b""
        while True:
            call = m.ReadConversation(self._id(), name, len(messages), len(tokens) // TOKEN_BYTES)
            part = self._call(call, m.ConversationReply)
            messages += part.messages
            tokens += part.tokens
            about = part.conversation
            whole = (
                len(messages) >= about.num_messages
                and len(tokens) >= TOKEN_BYTES * about.num_tokens
            )
            if whole or not (part.messages or part.tokens):
                return Conversation(about, tuple(messages), unpack_tokens(tokens))

    def fork(self, name: str, new: str, num_tokens: int | None = None) -> values.ConversationValue:
        """Make `new` begin with the first `num_tokens` tokens of `name` (None: all).

        Raises: UnknownConversation, BadRequest (name taken or bad, more tokens than there are).
        """
        check_names(name, new)
        call = m.Fork(self._id(), name, new, num_tokens)
        return self._call(call, m.ConversationReply).conversation

    def forget(self, name: str, on_progress: OnProgress | None = None) -> m.ForgetReply:
        """Remove a conversation and every byte that nothing else uses.

        Raises: UnknownConversation, ConversationBusy, BadRequest (nothing can be called so).
        """
        check_names(name)
        return self._call(m.Forget(self._id(), name), m.ForgetReply, on_progress)

    def publish(
        self,
        name: str,
        num_tokens: int | None = None,
        *,
        dry: bool = False,
        canonical: bool = False,
        on_progress: OnProgress | None = None,
    ) -> m.PublishReply:
        """Show peers the first tokens of a conversation (None: all), whatever their labels say.

        Args:
            dry: only say what would be.
            canonical: compute them anew in float64, and show that; `on_progress` is told how
                far it is.
        Raises: UnknownConversation, ConversationBusy, BadRequest (more tokens than there are),
            NetworkError (the node is offline), StoreFull, StoreBroken; where it is computed also
            UnknownModel, CapacityError, EngineDied, EngineFailed.
        """
        check_names(name)
        call = m.Publish(self._id(), name, num_tokens, dry, canonical)
        return self._call(call, m.PublishReply, on_progress)

    def withdraw(self, name: str) -> m.WithdrawReply:
        """Show peers a conversation no longer, and label all of it private.

        What peers took of it stays with them. Windows that other conversations show, too, are
        shown again at once.

        Raises: UnknownConversation, ConversationBusy, NetworkError (the node is offline),
            StoreFull, StoreBroken, QuotaExceeded.
        """
        check_names(name)
        return self._call(m.Withdraw(self._id(), name), m.WithdrawReply)

    def gc(self, *, unreferenced: bool = False, on_progress: OnProgress | None = None) -> m.GcReply:
        """Forget what has expired, drop what cannot be used, compact."""
        return self._call(m.Gc(self._id(), unreferenced), m.GcReply, on_progress)
