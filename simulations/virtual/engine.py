"""An engine on virtual time, beside which a resolver fetches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, cast

import trio

from daemon.binding import Binding
from daemon.link import EngineLink
from daemon.memory import Memory
from daemon.prefill import USUAL_SPEED
from daemon.resolver import Resolved
from glia.errors import NotFound
from glia.graph.ids import WindowId
from glia.local.messages import Emitted, Progress
from glia.store.base import BlockStore
from simulations.virtual.chains import CLASS, Chain, sealed

PIECE_TOKENS = 128


class Computing(Protocol):
    """A node in which an engine works."""

    memory: Memory

    @property
    def store(self) -> BlockStore: ...


async def restored(
    memory: Memory, binding: Binding, tokens: Sequence[int], *, exact: bool = True
) -> int:
    """Leading windows that are here, once all that peers were sending of them is, too."""
    names = await memory.match(binding, tokens, exact=exact, coming=True)
    done, is_late = 0, bool(names)
    while is_late:
        pinned = await memory.loader.pin(binding, names[done:])
        done, is_late = done + len(pinned.windows), pinned.is_late
        memory.loader.unpin(pinned.windows)
    return done


class ScriptedEngine:
    """Computes a chain as glia/engine does, and takes what waits for it between two pieces.

    Attributes:
        on_piece: called before each piece, with the windows that it has.
    """

    def __init__(self, node: Computing, chain: Chain, resolved: Resolved) -> None:
        self._node, self._chain, self._resolved = node, chain, resolved
        self._size = chain.profile.block_size
        self._binding = Binding(chain.model_id, chain.profile, CLASS)
        self._meets_at: int | None = None
        self._told: list[Progress | Emitted] = []
        self.on_piece: Callable[[int], Awaitable[None]] | None = None
        self.num_computed = self.num_adopted = 0

    def meet(self, run_id: int, position: int) -> None:
        assert run_id == 7
        self._meets_at = position

    async def answer(self) -> None:
        """Up to the first token."""
        self._resolved.began(cast(EngineLink, self), 7)
        num, piece = len(self._chain.records), PIECE_TOKENS // self._size
        done = await restored(self._node.memory, self._binding, self._chain.tokens)
        while done < num:
            if self.on_piece is not None:
                await self.on_piece(done)
            if self._meets_at is not None and done * self._size >= self._meets_at:
                done += await self._adopt(done)
                continue
            end = min(num, (done // piece + 1) * piece)
            if self._meets_at is not None:
                end = min(end, self._meets_at // self._size)
            await trio.sleep((end - done) * self._size / USUAL_SPEED)
            self._node.store.put(sealed(self._chain, range(done, end)))
            self.num_computed += end - done
            done = end
            self._tell(Progress(7, "prefill", done * self._size, num * self._size + 1))
        self._tell(Emitted(7, [1]))

    async def _adopt(self, done: int) -> int:
        self._meets_at = None
        prev: WindowId | None = self._chain.window_ids[done - 1] if done else None
        tokens = self._chain.tokens[done * self._size :]
        try:
            names = await self._node.memory.shelves.adopt(self._binding, prev, tokens)
        except NotFound:
            return 0
        assert names == self._chain.window_ids[done : done + len(names)]
        self.num_adopted += len(names)
        return len(names)

    def _tell(self, event: Progress | Emitted) -> None:
        self._told.append(self._resolved.heard(event))

    @property
    def told(self) -> Sequence[Progress | Emitted]:
        return self._told
