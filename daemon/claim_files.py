"""Claims in files: beside the checkpoints that this Body wrote, where others' would appear."""

from __future__ import annotations

import logging
from pathlib import Path

import trio

from daemon.soul_state import SoulState
from glia.errors import GliaError, MalformedParticle, StoreBroken
from glia.graph.claim import MAX_CLAIM_BYTES, Claim, parse_claim

_LOOK_S = 2.0
_PATIENCE_S = 0.5  # of who is about to answer, for a disk that is elsewhere
_log = logging.getLogger("gliad.soul")

_Stamp = tuple[int, int]


class ClaimFiles:
    """The one that looks for them."""

    def __init__(self, state: SoulState) -> None:
        self._state = state
        self._seen: dict[str, _Stamp] = {}

    async def run(self) -> None:
        """Heed claims as they appear, for ever."""
        while True:
            await self.look()
            await trio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Heed claims that are there; a disk that does not answer is not waited for."""
        found: list[tuple[str, _Stamp]] = []
        with trio.move_on_after(_PATIENCE_S):
            found = await trio.to_thread.run_sync(
                _stamps, self._state.known.watched, abandon_on_cancel=True
            )
        for name, stamp in found:
            if self._seen.get(name) == stamp:
                continue
            try:
                await self._heed(name, stamp)
            except GliaError as error:
                _log.warning("%s: %s", name, error)

    async def _heed(self, name: str, stamp: _Stamp) -> None:
        try:
            claim = await trio.to_thread.run_sync(read_claim, Path(name), abandon_on_cancel=True)
        except MalformedParticle:
            self._seen[name] = stamp  # told once: whoever can write there could fill the log
            raise
        if claim is not None:
            await self._state.heed(claim)
        self._seen[name] = stamp


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


def claim_beside(checkpoint: Path) -> Claim | None:
    """What is claimed of a checkpoint; what cannot be read, as anybody may write there, says
    nothing."""
    path = claim_path(checkpoint)
    try:
        return read_claim(path)
    except (MalformedParticle, StoreBroken) as error:
        _log.warning("%s: %s", path, error.message)
        return None


def claim_path(checkpoint: Path) -> Path:
    """Where the claim of who restores a checkpoint stands: beside it."""
    return checkpoint.with_name(f"{checkpoint.name}.claim")


def _stamps(names: tuple[str, ...]) -> list[tuple[str, _Stamp]]:
    found = []
    for name in names:
        try:
            status = Path(name).stat()
        except OSError:
            continue
        found.append((name, (status.st_mtime_ns, status.st_ino)))
    return found
