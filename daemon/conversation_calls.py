"""What people ask of conversations, and of the requests in them. No state of its own."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

import trio

from daemon.forking import fork
from daemon.parts import Parts
from glia.graph.conversation import Message
from glia.graph.tokens import TOKEN_BYTES
from glia.local.messages import (
    ConversationReply,
    Conversations,
    ConversationsReply,
    Fork,
    ReadConversation,
    Reply,
    Runs,
    RunsReply,
)
from glia.local.values import MessageValue

ConversationCall = Conversations | ReadConversation | Fork | Runs

_PART_BYTES = 256 * 1024
_PART_CONVERSATIONS = 200
_MESSAGE_BYTES = 64  # of one in a frame, without its texts


async def answer(parts: Parts, call: ConversationCall) -> Reply:
    """The reply to a call. Raises: GliaError."""
    match call:
        case Conversations():
            values = parts.conversations.values(call.start, _PART_CONVERSATIONS)
            return ConversationsReply(call.id, values, len(parts.conversations))
        case ReadConversation():
            return await _read(parts, call)
        case Fork():
            await fork(parts.conversations, parts.memory, call.name, call.new, call.num_tokens)
            return ConversationReply(call.id, parts.conversations.value(call.new), [], b"")
        case Runs():
            return RunsReply(call.id, parts.runs.values())


async def _read(parts: Parts, call: ReadConversation) -> ConversationReply:
    """As many messages from the one asked for as fit a frame well, then as many tokens."""
    replay = await parts.conversations.read(call.name)
    value = parts.conversations.value(call.name)
    tainted = await _tainted_answers(parts, call.name) if value.num_tainted else frozenset()
    room = _PART_BYTES
    messages: list[MessageValue] = []
    for message in islice(replay.messages, call.message_start, None):
        room -= message.text_bytes + len(message.role.encode()) + _MESSAGE_BYTES
        if messages and room < 0:
            break
        word = parts.conversations.word(message.visibility, replay.head.group)
        messages.append(_value(message, word, tainted))
    at = TOKEN_BYTES * call.token_start
    tokens = bytes(replay.tokens[at : at + max(0, room // TOKEN_BYTES) * TOKEN_BYTES])
    return ConversationReply(call.id, value, messages, tokens)


async def _tainted_answers(parts: Parts, name: str) -> frozenset[Message]:
    """Answers of turns whose windows are used no more. Raises: StoreBroken."""
    past = parts.conversations.past([name])
    turns = await trio.to_thread.run_sync(past.turns, name)
    condemned = parts.memory.hidden.condemned
    return frozenset(turn.messages[-1] for turn in turns if turn.tip in condemned)


def _value(message: Message, word: str, tainted: Collection[Message]) -> MessageValue:
    return MessageValue(
        role=message.role,
        content=message.content,
        start=message.start,
        end=message.end,
        visibility=word,
        is_tainted=message in tainted,
    )
