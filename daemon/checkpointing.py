"""Checkpoints of a Body's Soul: made when they are asked for, and by themselves every so often."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import trio
from msgspec import structs

from daemon.checkpoint_config import CheckpointConfig
from daemon.claim_files import claim_beside, claim_path
from daemon.conversations import Conversations
from daemon.neuron_key import neuron_signer
from daemon.paths import Paths
from daemon.soul_key import read_soul
from daemon.soul_state import SoulState
from daemon.telling import Tell, Told, tell_nobody, told_from_thread
from daemon.whole_file import write_private
from glia.errors import BadRequest, ConversationMoved, GliaError, QuotaExceeded, StoreBroken
from glia.graph.checkpoint import MAX_CHECKPOINT_BYTES, Checkpoint, names_of, seal_checkpoint
from glia.graph.soul import Soul, SoulId

_SECOND_US = 1_000_000
_HOUR_S = 3600.0
_RETRY_S = 60.0  # where one could not be made
_log = logging.getLogger("gliad.soul")


@dataclass(frozen=True, slots=True)
class Made:
    """A checkpoint that was written. num_moved: left out, as another Body has them."""

    soul: SoulId
    epoch: int
    sequence: int
    num_conversations: int
    num_moved: int
    size_bytes: int


class Checkpointing:
    """The one that makes them."""

    def __init__(
        self,
        conversations: Conversations,
        state: SoulState,
        paths: Paths,
        settings: CheckpointConfig,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._conversations, self._state, self._paths = conversations, state, paths
        self._settings, self._now_s = settings, now_s
        self._made_of: object = None  # what the last one by itself was made of

    async def make(
        self,
        names: Sequence[str],
        path: Path,
        *,
        is_kept: bool = True,
        tell: Tell = tell_nobody,
    ) -> Made:
        """Write one of these conversations (none named: of all), whole or not at all.

        Args: is_kept: the file stays there, so a claim would appear beside it.
        Raises: BadRequest (no Soul here, or the path cannot be), UnknownConversation,
            ConversationMoved, StoreBroken, QuotaExceeded (too large).
        """
        async with self._state.changing:
            return await self._make(
                names, path, tell, is_kept=is_kept, lease_us=self._state.known.lease_us
            )

    async def run(self) -> None:
        """Make them as the settings say, for ever."""
        settings = self._settings
        while settings.every_hours:
            left_s = settings.every_hours * _HOUR_S
            try:
                await self._make_by_itself(Path(settings.path))
            except GliaError as error:
                _log.warning("no checkpoint was made: %s; %s", error.message, error.hint)
                left_s = min(left_s, _RETRY_S)
            await trio.sleep(left_s)

    async def _make_by_itself(self, path: Path) -> None:
        settings = self._settings
        lease_us = int((self._now_s() + settings.lease_hours * _HOUR_S) * _SECOND_US)
        now = self._what_there_is()
        if now == self._made_of and not settings.lease_hours:
            return
        async with self._state.changing:
            await trio.to_thread.run_sync(_rotate, path, settings.keep)
            until_us = lease_us if settings.lease_hours else 0
            made = await self._make((), path, tell_nobody, lease_us=until_us)
        self._made_of = now
        _log.info("checkpoint %d of %d conversations", made.sequence, made.num_conversations)

    def _what_there_is(self) -> object:
        names = self._conversations.names()
        return {name: self._conversations.head(name).used_us for name in names}

    async def _make(
        self,
        names: Sequence[str],
        path: Path,
        tell: Tell,
        *,
        is_kept: bool = True,
        lease_us: int,
    ) -> Made:
        soul = await trio.to_thread.run_sync(read_soul, self._paths.soul_key)
        holder = await trio.to_thread.run_sync(neuron_signer, self._paths.neuron_key)
        claim = await trio.to_thread.run_sync(claim_beside, path) if is_kept else None
        is_ours = claim is None or claim.soul != soul.name or claim.holder == holder.neuron
        if claim is not None and not is_ours and claim.epoch >= self._state.of(soul.name).epoch:
            raise ConversationMoved(
                f"another Body ({claim.holder.hex()[:12]}) restored what is at {path}",
                hint="name another file, or gliad restore what that Body makes",
            )
        here, num_moved = self._which(names)
        past, told = self._conversations.past(here), told_from_thread(tell, "reading")
        files = await trio.to_thread.run_sync(_read, past.data, here, told)
        begins = [self._conversations.head(name).begin for name in here]
        moves = self._state.of(soul.name)
        moves = structs.replace(moves, sequence=moves.sequence + 1)
        known = self._state.known.after(moves)
        await self._state.keep(known)  # first: no two have one number
        checkpoint = Checkpoint(
            epoch=moves.epoch,
            sequence=moves.sequence,
            time_us=int(self._now_s() * _SECOND_US),
            lease_us=lease_us,
            holder=holder.neuron,
            models=names_of(begins),
            files=tuple(data for data in files if data),
        )
        tell("encrypting", 0, 0)
        size_bytes = await trio.to_thread.run_sync(_write, path, checkpoint, soul)
        await self._state.keep(structs.replace(known, lease_us=lease_us))
        if is_kept:
            await self._state.watch(claim_path(path))
        return Made(
            soul.name, moves.epoch, moves.sequence, len(checkpoint.files), num_moved, size_bytes
        )

    def _which(self, names: Sequence[str]) -> tuple[list[str], int]:
        """Those to be in it; how many are left out of all that there are."""
        for name in names:
            self._state.check_here(self._conversations.head(name).begin)
        if names:
            return list(dict.fromkeys(names)), 0
        found = self._conversations.names()
        here = [n for n in found if not self._state.elsewhere(self._conversations.head(n).begin)]
        return here, len(found) - len(here)


def _read(data_of: Callable[[str], bytes], names: Sequence[str], told: Told) -> list[bytes]:
    files: list[bytes] = []
    for done, name in enumerate(names, 1):
        files.append(data_of(name))
        told(done, len(names))
    return files


def _write(path: Path, checkpoint: Checkpoint, soul: Soul) -> int:
    """Raises: QuotaExceeded, BadRequest."""
    try:
        data = seal_checkpoint(checkpoint, soul)
    except ValueError as error:
        raise QuotaExceeded(
            f"these conversations take more than {MAX_CHECKPOINT_BYTES:,} bytes",
            hint="gliad checkpoint NAME ... of some of them",
        ) from error
    try:
        write_private(path, data)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint="name another file") from error
    return len(data)


def _rotate(path: Path, num_kept: int) -> None:
    """Move what is at `path` to PATH.1, and so on; the oldest goes. Raises: StoreBroken."""
    older = [path.with_name(f"{path.name}.{number}") for number in range(1, num_kept + 1)]
    try:
        for one, next_one in reversed(list(pairwise(older))):
            if one.exists():
                os.replace(one, next_one)
        if older and path.exists():
            write_private(older[0], path.read_bytes())  # it is there all the time
    except OSError as error:
        raise StoreBroken(
            f"{path}: {error.strerror}", hint="checkpoint.path in glia.toml"
        ) from error
