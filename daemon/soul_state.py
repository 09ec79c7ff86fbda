"""What a Body knows of its Souls' moves: checkpoints made, and conversations that are elsewhere.

Owned by the trio thread; its file is written in worker threads, one after the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio
from msgspec import structs

from daemon.models_registry import write_whole
from daemon.moves import Claimed, Known, Moves, joined
from glia.errors import ConversationMoved, StoreBroken, StoreFull
from glia.graph.claim import Claim
from glia.graph.conversation import Begin
from glia.graph.journal import id_of
from glia.graph.neuron import NeuronId
from glia.graph.soul import SoulId

_MAX_WATCHED = 32
_MAX_STATE_BYTES = 32 * 2**20
_SECOND_US = 1_000_000
_log = logging.getLogger("gliad.soul")


class SoulState:
    """Whoever changes it holds `changing`.

    Attributes:
        known: changed through `keep`, or `take` where it was written otherwise.
        on_heed: called when a claim said something new.
    """

    def __init__(self, path: Path, known: Known, own: Callable[[], NeuronId]) -> None:
        """Args: own: this Body's neuron."""
        self._path, self._own = path, own
        self.changing = trio.Lock()
        self.on_heed: Callable[[], None] = lambda: None
        self.take(known)

    @classmethod
    def read(cls, path: Path, own: Callable[[], NeuronId]) -> SoulState:
        """Raises: StoreBroken: what is not known is not to be guessed."""
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_STATE_BYTES)
            return cls(path, msgspec.json.decode(data, type=Known), own)
        except FileNotFoundError:
            return cls(path, Known(), own)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreBroken(
                f"{path} cannot be read: {error}",
                hint=f"mv {path} elsewhere: this Body then forgets what moved away from it",
            ) from error

    def encoded(self, known: Known) -> bytes:
        """As the file has it. Raises: StoreFull."""
        data = msgspec.json.encode(known)
        if len(data) >= _MAX_STATE_BYTES:
            raise StoreFull("more conversations moved than can be known of")
        return data

    async def keep(self, known: Known) -> None:
        """Know this from now on, durably. Raises: StoreBroken, StoreFull."""
        await trio.to_thread.run_sync(write_whole, self._path, self.encoded(known))
        self.take(known)

    def take(self, known: Known) -> None:
        """Know this, which the file says already."""
        self.known = known
        self._bearers = {
            name: claimed for moves in known.souls for name, claimed in moves.bearers.items()
        }

    def of(self, soul: SoulId) -> Moves:
        """What is known of this Soul."""
        return self.known.of(soul)

    def elsewhere(self, begin: Begin) -> Claimed | None:
        """The claim of another Body that has this conversation; None where it is here."""
        claimed = self._bearers.get(id_of(begin).hex()) if self._bearers else None
        return claimed if claimed is not None and self.is_others(claimed) else None

    def moved_to(self, begin: Begin) -> str:
        """The neuron of the Body that has it; "" where this one does."""
        claimed = self.elsewhere(begin)
        return claimed.holder if claimed is not None else ""

    def is_others(self, claimed: Claimed) -> bool:
        """Whether another Body claims that."""
        return claimed.holder != self._own().hex()

    def check_here(self, begin: Begin) -> None:
        """Raises: ConversationMoved where this conversation may not go on here."""
        claimed = self.elsewhere(begin)
        if claimed is not None:
            since = _day(claimed.time_us)
            raise ConversationMoved(
                f"{begin.name} moved to another Body ({claimed.holder[:12]}) at {since}",
                hint=f"gliad fork {begin.name} NEW goes on here, apart from it",
            )
        lease_us = self.known.lease_us
        if lease_us and lease_us < time.time() * _SECOND_US:
            raise ConversationMoved(
                f"this Body may go on till {_day(lease_us)} only: since then its Soul may "
                "be elsewhere",
                hint="gliad checkpoint renews that where checkpoint.path can be written",
            )

    async def watch(self, path: Path) -> None:
        """A claim may appear there. Raises: StoreBroken, StoreFull."""
        others = [each for each in self.known.watched if each != str(path)]
        watched = (*others, str(path))[-_MAX_WATCHED:]
        if watched != self.known.watched:
            await self.keep(structs.replace(self.known, watched=watched))

    async def heed(self, *claims: Claim) -> bool:
        """Let go what other Bodies have. Returns: whether they say something new.

        Those of a Soul that was never here say nothing. Raises: StoreBroken, StoreFull.
        """
        async with self.changing:
            known = self.known
            for claim in claims:
                before = known.of(claim.soul)
                after = joined(before, claim) if before in known.souls else before
                if after != before:
                    known = known.after(after)
            if known == self.known:
                return False
            num_before = self.num_elsewhere
            await self.keep(known)
        if self.num_elsewhere != num_before:
            _log.warning("%d conversations are at other Bodies now", self.num_elsewhere)
        self.on_heed()
        return True

    @property
    def num_elsewhere(self) -> int:
        """Conversations that other Bodies have, of which this one knows."""
        return sum(
            len(claimed.conversations)
            for moves in self.known.souls
            for claimed in moves.claims
            if self.is_others(claimed)
        )


def _day(time_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_us / _SECOND_US))
