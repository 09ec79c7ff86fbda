"""Peers that do not do what they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from p2p.offer import Candidate
from simulations.virtual.chains import CLASS, Chain
from simulations.virtual.library import Library

T = TypeVar("T")


class Liar(Library):
    """A bit of each of its blocks is another."""

    is_honest = False

    def _block(self, block_id: BlockId) -> bytes | None:
        data = super()._block(block_id)
        return None if data is None else data[:-1] + bytes([data[-1] ^ 1])


class Hoarder(Library):
    """It names its chains, and gives no block of them."""

    is_honest = False

    def _block(self, block_id: BlockId) -> bytes | None:
        return None


class Boaster(Library):
    """It says that it has whatever is asked for."""

    is_honest = False

    def match(
        self, model_id: ModelId, profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        num, key = max(keys)
        return [Candidate(num, WindowId(key[::-1]), CLASS, ())]


class Staller(Library):
    """It takes every question, and answers none."""

    is_honest = False

    async def answer(self, call: Callable[[], T], /) -> T:
        await trio.sleep_forever()
        raise AssertionError


class Taker(Library):
    """A free rider: it takes what it wants and shows nothing of it."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: set[WindowId] = set()

    def has(self, chain: Chain) -> bool:
        return chain.tip in self._taken

    def add(self, chain: Chain) -> None:
        self._taken.add(chain.tip)


LIARS = (Liar, Hoarder, Boaster, Staller)
