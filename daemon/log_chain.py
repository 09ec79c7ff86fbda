"""The windows of a conversation's log."""

from __future__ import annotations

from daemon.memory import Memory
from glia.errors import MalformedParticle, NotFound
from glia.graph.conversation import Replay
from glia.graph.tokens import TOKEN_BYTES, pack_tokens
from glia.graph.window import WindowRecord


async def chain_of(memory: Memory, replay: Replay) -> list[WindowRecord]:
    """All full windows of a log, found from the tips there were; none if they are not stored."""
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
            return chain[:count]
    return []
