"""What a node offers to peers: the one thing of it that network code can see.

An implementation reads published objects only, in a key space of its own, so that what
is private cannot be named here at all. What is refused is not there: absent, as anything
that nobody ever had.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chain that answers a question.

    Attributes:
        num_windows: how many of its windows match, from genesis.
        tip: the last of these.
        numerics_class: the tip's.
        links: signed links of the chain as they travel, the nearest to the tip first.
    """

    num_windows: int
    tip: WindowId
    numerics_class: str
    links: tuple[bytes, ...] = ()


def read_each(
    block: Callable[[BlockId], bytes | None], block_ids: Sequence[BlockId], into: memoryview
) -> list[memoryview | None]:
    """`Offer.read_blocks` of those that have nothing better than one block after the other."""
    found: list[memoryview | None] = []
    at = 0
    for data in map(block, block_ids):
        end = at + len(data or b"")
        if end > len(into):
            break
        into[at:end] = data or b""
        found.append(into[at:end] if data is not None else None)
        at = end
    return found


class Offer(Protocol):
    """Sync, called in worker threads, several at once. An error of any call ends its stream."""

    def match(
        self,
        model_id: ModelId,
        profile_id: ProfileId,
        keys: Sequence[tuple[int, PrefixKey]],
    ) -> list[Candidate]:
        """Chains whose first n windows have the prefix key of one of the (n, key).

        The longest first; whole chains only: all records and blocks are there.
        """

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        """The encodings of windows `start` to `num_windows` - 1 of the chain that ends in `tip`.

        In order; empty where any of them is not there, or the tip is not at that place.
        """

    def record(self, window_id: WindowId) -> bytes | None:
        """The encoding of a window record."""

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """As many of the first particles as fit a buffer: views of it; None where one is absent.

        Their hashes were verified as they were read. Nothing, where the first does not fit.
        """

    def has_block(self, block_id: BlockId) -> bool:
        """Whether `read_blocks` would have it, without reading it."""

    def next_links(self, window_id: WindowId) -> list[bytes]:
        """Links whose base is this window, as they travel."""
