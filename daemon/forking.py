"""A fork of a conversation: the first tokens of its log under another name. No K/V is copied."""

from __future__ import annotations

import time
from dataclasses import replace

from daemon.conversations import Conversations
from daemon.log_chain import chain_of
from daemon.memory import Memory
from glia.errors import BadRequest
from glia.graph.conversation import Origin, Replay, Turn
from glia.graph.group import GroupId
from glia.graph.privacy import Visibility
from glia.graph.tokens import unpack_tokens

_SECOND_US = 1_000_000


async def fork(
    conversations: Conversations, memory: Memory, name: str, new: str, num_tokens: int | None
) -> None:
    """Make `new` begin with the first `num_tokens` tokens of `name` (None: all).

    Raises: UnknownConversation, ConversationBusy, BadRequest, StoreFull, StoreBroken.
    """
    with conversations.making(new):
        replay = await conversations.read(name)
        if num_tokens is None:
            num_tokens = replay.head.num_tokens
        if num_tokens > replay.head.num_tokens:
            raise BadRequest(
                f"{name} has {replay.head.num_tokens:,} tokens, not {num_tokens:,}",
                hint=f"gliad fork {name}@{replay.head.num_tokens} {new}",
            )
        replay.cut(num_tokens)
        now_us = int(time.time() * _SECOND_US)
        chain = await chain_of(memory, replay)
        tip = chain[-1].window_id if chain else None
        begin = replace(replay.head.begin, name=new, created_us=now_us)
        tokens = unpack_tokens(bytes(replay.tokens))
        turn = Turn(now_us, 0, tokens, tuple(replay.messages), tip, _group_of(replay))
        await conversations.create(new, (begin, Origin(name, num_tokens), turn))


def _group_of(replay: Replay) -> GroupId | None:
    """Whose what is kept is; of a message that is cut off nothing is."""
    shared = any(message.visibility is Visibility.AGGREGATE for message in replay.messages)
    return replay.head.group if shared else None
