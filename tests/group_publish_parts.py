"""A node's publishers, public and the group's, over real conversations, L1, L2 and indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from daemon.config import ConversationsConfig
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.egress import Egress
from daemon.group_egress import GroupEgress
from daemon.group_part import GroupPart
from daemon.group_publisher import GroupPublisher
from daemon.memory import Memory
from daemon.publisher import Publisher
from daemon.shared import Shared
from daemon.turns import open_turn
from glia.errors import NotPermitted
from glia.graph.group import GroupId
from glia.graph.ids import WindowId
from glia.graph.neuron import Signer
from glia.graph.scope import Op, Scope
from glia.local.values import MessageValue
from glia.store.group_index import GroupIndex
from glia.store.published import Published
from glia.store.vault import Vault
from p2p.host import PeerId
from p2p.offer import Offer
from tests.conversation_parts import SAID, answer_of, attach_of, call_of, turn_of
from tests.domain_parts import SIZE, TEAM, KnownGroups, group_memory, seal

NOW_S = 1_900_000_000.0
SIGNER = Signer(b"\6" * 32)
PEER = PeerId("somebody")
Labels = Sequence[tuple[int, str]]  # where each message ends, and its label


@dataclass
class Node:
    """One that is in TEAM. `parts`: what the group's publisher told."""

    memory: Memory
    conversations: Conversations
    published: Published
    shared: Shared
    publisher: Publisher
    in_group: GroupPublisher
    counters: Counter[str]
    parts: list[GroupPart]

    def __post_init__(self) -> None:
        def check(group: GroupId, capability: bytes, _peer: PeerId) -> Scope:
            if (group, capability) != (TEAM.group_id, b"right"):
                raise NotPermitted("no")
            return Scope(group, group, Op.FETCH, 1, 0, 2**40)

        self.public: Offer = Egress(self.published, self.shared.raw)
        egress = GroupEgress(self.shared.index, self.shared.raw, check, self.counters)
        self.team = egress.offer_of(TEAM.group_id, b"right", PEER)

    async def say(
        self, name: str, tokens: Sequence[int], labels: Labels, *, keep: int = 0
    ) -> list[WindowId]:
        """A turn of all of these tokens, computed. Returns: its windows."""
        said: list[MessageValue] = []
        for end, label in labels:
            said.append(SAID("user", None, said[-1].end if said else keep, end, label))
        prompt = list(tokens)
        call = call_of(prompt[:-1], turn_of(name, keep, *said))
        async with open_turn(self.conversations, call) as turn:
            turn.accept(attach_of())
            domain = turn.domain(SIZE)
            start = len(prompt) if domain is None else domain.start
            names = await seal(self.memory, prompt[:start]) if start else []
            if domain is not None:
                prev = names[-1] if names else None
                names += await seal(self.memory, prompt, domain, prev, start)
            await turn.commit(answer_of(call, prompt[-1:], names[-1]))
        return names

    async def shown(self) -> None:
        """Have both publish what there is."""
        for each in (self.publisher, self.in_group):
            each.look_anew()
            assert await each._look() == 0


@asynccontextmanager
async def node_of(path: Path, groups: KnownGroups) -> AsyncIterator[Node]:
    """The same directory is the same node, started anew."""
    async with group_memory(path, groups) as memory:
        vault = memory.store
        assert isinstance(vault, Vault)
        settings = ConversationsConfig()
        files = ConversationFiles(path / "conversations")
        conversations = Conversations(files, settings, groups)
        published, index = Published(path / "published"), GroupIndex(path / "shown")
        shared = Shared(vault, vault._store, index, groups)
        counters, still = Counter[str](), trio.Lock()
        common = published, SIGNER, still, 60.0, counters, lambda: NOW_S
        publisher = Publisher(memory, conversations, *common)
        in_group = GroupPublisher(memory, conversations, shared, *common)
        parts: list[GroupPart] = []
        in_group.on_publish = parts.append
        try:
            yield Node(
                memory, conversations, published, shared, publisher, in_group, counters, parts
            )
        finally:
            published.close()
            index.close()
