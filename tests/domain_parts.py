"""Groups whose secrets are known, without a group's files; and memory that knows them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from daemon.arena import SharedMemory, make_staging
from daemon.binding import Binding
from daemon.domains import Domains, Groups, epochs_of
from daemon.memory import Memory
from glia.errors import NotFound
from glia.graph.domain import Domain
from glia.graph.group import Epoch, GroupId, GroupSecret
from glia.graph.ids import WindowId
from glia.graph.member import Keys
from glia.local.messages import Seal
from glia.local.values import DomainValue
from glia.store.disk import DiskStore
from glia.store.keyring import Keyring
from glia.store.vault import Vault
from tests.builders import CLASS, MODEL, TINY, make_payload
from tests.node_parts import MIB

BINDING = Binding(MODEL, TINY, CLASS)
SIZE = TINY.block_size


@dataclass(frozen=True)
class KnownGroup:
    name: str
    group_id: GroupId
    secrets: Keys


TEAM = KnownGroup(
    "team", GroupId(b"t" * 32), Keys(GroupSecret(b"1" * 32), (Epoch(1, b"t" * 32),), (b"",))
)
CLUB = KnownGroup(
    "club", GroupId(b"c" * 32), Keys(GroupSecret(b"2" * 32), (Epoch(1, b"c" * 32),), (b"",))
)


class KnownGroups:
    """Those of a node; `left` are forgotten."""

    def __init__(self, *groups: KnownGroup) -> None:
        self._groups = list(groups)

    def all(self) -> Sequence[KnownGroup]:
        return self._groups

    def named(self, text: str) -> KnownGroup:
        for each in self._groups:
            if text in (each.name, each.group_id.hex()):
                return each
        raise NotFound(f"this node is in no group {text!r}", hint="gliad group list")

    def keys(self, group: GroupId) -> Keys | None:
        return next((each.secrets for each in self._groups if each.group_id == group), None)

    def is_in(self, group: GroupId) -> bool:
        return self.keys(group) is not None

    def leave(self, group: KnownGroup) -> None:
        self._groups.remove(group)


@asynccontextmanager
async def group_memory(path: Path, groups: Groups) -> AsyncIterator[Memory]:
    """L1 and L2 of a node with these groups: the same directory is the same node, started anew."""
    arena, store = SharedMemory("test-l1", MIB, 0), DiskStore(path / "store", 64 * MIB, MIB)
    vault = Vault(store, Keyring(lambda: epochs_of(groups), lambda: b"o" * 32))
    memory = Memory(arena, vault, 4, Domains(groups))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.writer.run)
            yield memory
            memory.table.check()
            nursery.cancel_scope.cancel()
    finally:
        store.close()
        arena.close()


async def seal(
    memory: Memory,
    tokens: Sequence[int],
    domain: Domain | None = None,
    prev: WindowId | None = None,
    start: int = 0,
) -> list[WindowId]:
    """Seal whole windows of tokens from a position on, with K and V that follow from the tokens."""
    num = (len(tokens) - start) // SIZE
    payloads = b"".join(
        make_payload(TINY.window_payload_bytes, tuple(tokens[: start + SIZE * (index + 1)]))
        for index in range(num)
    )
    staging = make_staging(len(payloads))
    staging.view[:] = payloads
    part = list(tokens[start : start + SIZE * num])
    try:
        call = Seal(1, prev, start, part, 0, 0, DomainValue.of(domain))
        return (await memory.sealer.seal(BINDING, staging.view, call)).windows
    finally:
        staging.close()
