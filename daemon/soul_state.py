"""What a Body knows of its Soul's moves: checkpoints made, and conversations that are elsewhere.

Owned by the trio thread; its file is written in worker threads, one after the other.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
import trio
from msgspec import Meta

from daemon.models_registry import write_whole
from glia.errors import ConversationMoved, GliaError, MalformedParticle, StoreBroken
from glia.graph.claim import MAX_CLAIM_BYTES, Claim, parse_claim
from glia.graph.conversation import Begin
from glia.graph.ids import short
from glia.graph.journal import id_of

_LOOK_S = 2.0
_MAX_WATCHED = 32
_MAX_STATE_BYTES = 16 * 2**20
_SECOND_US = 1_000_000
_log = logging.getLogger("gliad.soul")

_Hex = Annotated[str, Meta(min_length=64, max_length=64)]


class Moves(msgspec.Struct, frozen=True):
    """What is kept. Of no Soul: "".

    epoch, sequence: of the last move and the last checkpoint that is known of.
    lease_us: until when this Body may go on by itself; 0: for ever.
    watched: files where a claim would appear.
    own: the neuron that this Body claimed them with last; "" where it never did.
    moved: conversations that `holder` has since `moved_us`.
    """

    soul: str = ""
    epoch: int = 0
    sequence: int = 0
    lease_us: int = 0
    watched: tuple[str, ...] = ()
    own: str = ""
    moved: tuple[_Hex, ...] = ()
    holder: str = ""
    moved_us: int = 0


@dataclass
class SoulState:
    """Whoever changes it holds `changing`.

    Attributes:
        moves: what is known; changed through `keep` alone.
    """

    path: Path
    moves: Moves = field(default_factory=Moves)
    changing: trio.Lock = field(default_factory=trio.Lock)

    @classmethod
    def read(cls, path: Path) -> SoulState:
        """Raises: StoreBroken: what is not known is not to be guessed."""
        try:
            with path.open("rb") as file:
                data = file.read(_MAX_STATE_BYTES)
            return cls(path, msgspec.json.decode(data, type=Moves))
        except FileNotFoundError:
            return cls(path)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreBroken(
                f"{path} cannot be read: {error}",
                hint=f"mv {path} elsewhere: this Body then forgets what moved away from it",
            ) from error

    def encoded(self, moves: Moves) -> bytes:
        """As the file has it."""
        return msgspec.json.encode(moves)

    async def keep(self, moves: Moves) -> None:
        """Know this from now on, durably. Raises: StoreBroken."""
        await trio.to_thread.run_sync(write_whole, self.path, self.encoded(moves))
        self.moves = moves

    def of(self, soul: bytes) -> Moves:
        """What is known of this Soul."""
        return self.moves if self.moves.soul == soul.hex() else Moves(soul=soul.hex())

    def check_here(self, begin: Begin) -> None:
        """Raises: ConversationMoved where this conversation may not go on here."""
        moves = self.moves
        if moves.moved and id_of(begin).hex() in moves.moved:
            since = _day(moves.moved_us)
            raise ConversationMoved(
                f"{begin.name} moved to another Body ({moves.holder[:12]}) at {since}",
                hint=f"gliad fork {begin.name} NEW goes on here, apart from it",
            )
        if moves.lease_us and moves.lease_us < time.time() * _SECOND_US:
            raise ConversationMoved(
                f"this Body may go on till {_day(moves.lease_us)} only: since then its Soul may "
                "be elsewhere",
                hint="gliad checkpoint renews that where checkpoint.path can be written",
            )

    def is_moved(self, begin: Begin) -> bool:
        """Whether another Body has it."""
        return id_of(begin).hex() in self.moves.moved

    async def watch(self, path: Path) -> None:
        """A claim may appear there. Raises: StoreBroken."""
        others = [each for each in self.moves.watched if each != str(path)]
        watched = (*others, str(path))[-_MAX_WATCHED:]
        if watched != self.moves.watched:
            await self.keep(msgspec.structs.replace(self.moves, watched=watched))

    async def run(self) -> None:
        """Heed claims as they appear, for ever."""
        seen: dict[str, tuple[int, int]] = {}
        while True:
            await self.look(seen)
            await trio.sleep(_LOOK_S)

    async def look(self, seen: dict[str, tuple[int, int]]) -> None:
        """Heed claims that are there. Args: seen: files as they were; changed."""
        for name in self.moves.watched:
            try:
                await self._look(Path(name), seen)
            except GliaError as error:
                _log.warning("%s: %s", name, error)

    async def heed(self, claim: Claim) -> bool:
        """Let go what another Body has. Returns: whether it says something new.

        Raises: StoreBroken.
        """
        async with self.changing:
            moves = self.moves
            if claim.soul.hex() != moves.soul or not _is_later(claim, moves):
                return False
            moved = sorted({*moves.moved, *(name.hex() for name in claim.conversations)})
            await self.keep(
                msgspec.structs.replace(
                    moves,
                    epoch=claim.epoch,
                    sequence=max(moves.sequence, claim.sequence),
                    moved=tuple(moved),
                    holder=claim.holder.hex(),
                    moved_us=claim.time_us,
                )
            )
        _log.warning(
            "%d conversations moved to Body %s", len(claim.conversations), short(claim.holder)
        )
        return True

    async def _look(self, path: Path, seen: dict[str, tuple[int, int]]) -> None:
        found = await trio.to_thread.run_sync(_stamp, path, abandon_on_cancel=True)
        if found is None or seen.get(str(path)) == found:
            return
        try:
            claim = await trio.to_thread.run_sync(read_claim, path, abandon_on_cancel=True)
        except MalformedParticle:
            seen[str(path)] = found  # told once: whoever can write there could fill the log
            raise
        seen[str(path)] = found
        if claim is not None:
            await self.heed(claim)


def _is_later(claim: Claim, moves: Moves) -> bool:
    """Whether it says what is not known yet. Of two that claimed at once, who did first lets go:
    a claim in a file is the last one that was written there."""
    if claim.epoch == moves.epoch:
        return claim.holder.hex() not in (moves.own, moves.holder)
    return claim.epoch > moves.epoch


def read_claim(path: Path) -> Claim | None:
    """What is claimed there; None where nothing is. Raises: MalformedParticle, StoreBroken."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CLAIM_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreBroken(f"{path}: {error.strerror}") from error
    return parse_claim(data)


def claim_path(checkpoint: Path) -> Path:
    """Where the claim of who restores a checkpoint stands: beside it."""
    return checkpoint.with_name(f"{checkpoint.name}.claim")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _day(time_us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_us / _SECOND_US))
