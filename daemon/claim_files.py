"""Claims in files: beside the checkpoints that this Body wrote, where others' would appear."""

from __future__ import annotations

import logging
from pathlib import Path

import trio

from daemon.soul_state import SoulState
from glia.errors import GliaError, MalformedParticle, StoreBroken
from glia.graph.claim import MAX_CLAIM_BYTES, Claim, parse_claim

_LOOK_S = 2.0
_PATIENCE_S = 1.0  # of who is about to answer, for a disk that is elsewhere
_log = logging.getLogger("gliad.soul")

_Stamp = tuple[int, int]
_Found = tuple[str, _Stamp, Claim | GliaError | None]


class ClaimFiles:
    """The one that looks for them."""

    def __init__(self, state: SoulState) -> None:
        self._state = state
        self._seen: dict[str, _Stamp] = {}
        self._one = trio.CapacityLimiter(1)  # a disk that hangs holds one thread, and no more

    async def run(self) -> None:
        """Heed claims as they appear, for ever."""
        while True:
            await self.look()
            await trio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Heed claims that are there; a disk that does not answer is not waited for."""
        found: list[_Found] = []
        with trio.move_on_after(_PATIENCE_S):
            found = await trio.to_thread.run_sync(
                _read_new,
                self._state.known.watched,
                dict(self._seen),
                abandon_on_cancel=True,
                limiter=self._one,
            )
        for name, stamp, claim in found:
            try:
                if isinstance(claim, Claim):
                    await self._state.heed(claim)
                elif claim is not None:
                    _log.warning("%s: %s", name, claim)  # once: whoever writes there could fill it
            except GliaError as error:
                _log.warning("%s: %s", name, error)
            else:
                self._seen[name] = stamp


def _read_new(names: tuple[str, ...], seen: dict[str, _Stamp]) -> list[_Found]:
    """Files that are not as they were seen. Blocking."""
    found: list[_Found] = []
    for name in names:
        try:
            status = Path(name).stat()
        except OSError:
            continue
        stamp = (status.st_ctime_ns, status.st_ino)
        if seen.get(name) == stamp:
            continue
        try:
            found.append((name, stamp, read_claim(Path(name))))
        except (MalformedParticle, StoreBroken) as error:
            found.append((name, stamp, error))
    return found


def read_claim(path: Path) -> Claim | None:
    """What is claimed there; None where nothing is. Raises: MalformedParticle, StoreBroken."""
    try:
        if not path.is_file():  # a pipe would be waited for
            return None
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
