"""A fork of a conversation: the first tokens of its log under another name. No K/V is copied."""

from __future__ import annotations

import time
from dataclasses import replace

from daemon.conversations import Conversations
from daemon.memory import Memory
from glia.errors import BadRequest, MalformedParticle, NotFound
from glia.graph.conversation import Origin, Replay, Turn
from glia.graph.ids import WindowId
from glia.graph.tokens import TOKEN_BYTES, pack_tokens, unpack_tokens

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
        tip = await _tip_of(memory, replay)
        begin = replace(replay.head.begin, name=new, created_us=now_us)
        tokens = unpack_tokens(bytes(replay.tokens))
        turn = Turn(now_us, 0, tokens, tuple(replay.messages), tip)
        await conversations.create(new, (begin, Origin(name, num_tokens), turn))


async def _tip_of(memory: Memory, replay: Replay) -> WindowId | None:
    """The last full window of a log, found from the tips there were; None if it is not stored."""
    for tip in reversed(replay.head.tips):
        try:
            chain = await memory.chain(tip)
        except (NotFound, MalformedParticle):
            continue
        if not chain:
            continue
        count = len(replay.tokens) // (TOKEN_BYTES * len(chain[0].tokens))
        packed = b"".join(pack_tokens(record.tokens) for record in chain[:count])
        if count and len(chain) >= count and replay.tokens.startswith(packed):
            return chain[count - 1].window_id
    return None
