"""The public client of gliad, synchronous, for one thread. The CLI and the engine have no other.

    with Client.connect(data_dir) as client:
        for event in client.generate("smollm2", tokens, max_tokens=16):
            ...  # Progress and Emitted (tokens), at last Generated (usage, tip), of local.messages

Tokens are the model's own (glia.model.tokenizer). `*_begin` sends a call and gives a ticket,
`*_end` waits for its answer: several may be under way. Every error is one of glia.errors,
with a hint of what to type next.

The calls stand in modules by what they are about; each is a class over one Caller.
"""

from __future__ import annotations

from glia.client.checkpoints import CheckpointCalls
from glia.client.conversations import ConversationCalls
from glia.client.generation import GenerationCalls
from glia.client.groups import GroupCalls
from glia.client.links import LinkCalls
from glia.client.memory import MemoryCalls
from glia.client.node import NodeCalls
from glia.client.peers import PeerCalls
from glia.client.traces import TraceCalls
from glia.client.truth import TruthCalls


class Client(
    NodeCalls,
    GenerationCalls,
    ConversationCalls,
    TraceCalls,
    CheckpointCalls,
    PeerCalls,
    LinkCalls,
    GroupCalls,
    TruthCalls,
    MemoryCalls,
):
    """All calls of the local API, over one connection to a running gliad."""
