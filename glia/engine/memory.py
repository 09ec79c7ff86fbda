"""The engine's way to L1 and below: match, lease, seal, flush. A port.

`glia.engine.remote` keeps it over the local API; `glia.engine.testing` keeps it in
one process (shipped; passes the same contract suite).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from glia.engine.finding import Finding
from glia.graph.domain import Domain
from glia.graph.ids import WindowId


@dataclass(frozen=True, slots=True)
class Leased:
    """Windows pinned in L1.

    Attributes:
        offsets: [W, L] int64, where each block's *payload* starts in `TierMemory.arena`.
        tiers: per window 1 = was in L1, 2 = came from L2, 3 = came from a peer.
        checks: per window 0 = it may be used, 1 = it came from a peer and nobody has looked at
            it yet, 2 = the same, and it is of class canonical.
        is_late: the next one is on its way from a peer: to be asked for again.
    """

    lease: int
    offsets: NDArray[np.int64]
    tiers: tuple[int, ...]
    checks: tuple[int, ...]
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Examined:
    """What came of looking at a window that a peer sent.

    Attributes:
        is_audit: it was computed again; else it was checked before its first use.
    """

    window_id: WindowId
    finding: Finding
    is_audit: bool


class TierMemory(Protocol):
    """L1 and below, seen from an engine. All calls are synchronous."""

    @property
    def arena(self) -> NDArray[np.uint8]:
        """L1, [arena_bytes]; reading only: writes never reach it."""

    @property
    def staging(self) -> NDArray[np.uint8]:
        """The engine's staging area, [staging_bytes], shared with gliad."""

    def match(
        self, tokens: Sequence[int], *, exact: bool = True, domain: Domain | None = None
    ) -> list[WindowId]:
        """The longest known chain of whole windows for `tokens`; peers may be sending its end.

        Args:
            exact: of the own numerics class and `canonical` only; else of any, the own one on a
                tie.
            domain: of the group whose windows are looked for from its start on.
        Raises: NotFound where that group is not known here.
        """

    def known(self, window_ids: Sequence[WindowId]) -> set[WindowId]:
        """Those of these windows that are whole in L1 or L2."""

    def adopt(self, prev: WindowId | None, tokens: Sequence[int]) -> list[WindowId]:
        """Windows of these tokens that peers sent ahead, and that follow `prev` from now on.

        Raises: NotFound (`prev` is not known).
        """

    def examined(self, found: Sequence[Examined]) -> list[WindowId]:
        """Tell what came of looking at windows. Returns: those to be computed again, too, before
        they are used. What is not clean is in no match any more."""

    def lease_begin(self, window_ids: Sequence[WindowId]) -> None:
        """Ask for a lease; several may be under way, answered in order (pipelining)."""

    def lease_end(self) -> Leased:
        """The oldest asked lease; may cover fewer windows than asked (a hole, or they are late)."""

    def release(self, lease: int) -> None:
        """Give a lease back; not waited for."""

    def seal_begin(
        self,
        prev: WindowId | None,
        position_start: int,
        tokens: Sequence[int],
        offset: int,
        num_steps: int,
        domain: Domain | None = None,
    ) -> None:
        """Ask for names of full windows whose payloads stand in staging at `offset`.

        Layout [W][L] payloads without gaps. The bytes must stay until seal_end.
        Args: domain: of the group whose they are from its start on, as `match` was told.
        """

    def seal_end(self) -> list[WindowId]:
        """Names of the oldest asked seal.

        Raises: NotFound (the window before them is gone), ArenaExhausted, StoreBroken.
        """

    def seal_ready(self) -> bool:
        """Whether seal_end would not wait."""

    def flush(self, window_ids: Sequence[WindowId]) -> None:
        """Return when these windows are durable. Raises: StoreFull, StoreBroken, NotFound."""
