"""A checkpoint is restored: every conversation of it, or none, whatever happens meanwhile.

read      the file, opened with the Soul's key: what is not whole is refused here
plan      against what is here: what is new, goes on, is here, or is another
stage     all files and the Soul's state, in a directory under another name
commit    one rename: from here on the next start goes on where this one ends
move      files to their places, the state last
claim     beside the checkpoint: the Body that made it lets go
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import trio
from msgspec import structs

from daemon.claim_files import claim_beside, claim_path
from daemon.conversations import Conversations
from daemon.mending import Kept
from daemon.moves import Known, joined, with_bodies
from daemon.neuron_key import neuron_signer
from daemon.paths import Paths
from daemon.restored_files import finish_restoring, read_checkpoint, stage
from daemon.soul_key import read_soul
from daemon.soul_state import SoulState
from daemon.telling import Tell, tell_nobody, told_from_thread
from daemon.whole_file import write_private
from glia.errors import BadRequest, GliaError
from glia.graph.checkpoint import Checkpoint, open_checkpoint, read_files
from glia.graph.claim import Claim, sign_claim
from glia.graph.journal import Journal, id_of
from glia.graph.neuron import NeuronId
from glia.graph.soul import Soul

_SECOND_US = 1_000_000
_LEEWAY_US = 120 * _SECOND_US  # by which another clock may differ
_log = logging.getLogger("gliad.soul")


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of one conversation.

    Attributes:
        what: new, goes_on (it says more than what is here), same, or newer (what is here says
            more, and stays).
    """

    name: str
    what: str
    data: bytes
    journal: Journal


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, or would be.

    Attributes:
        claim: where the claim stands that makes the other Body let go; None where it could not
            be written beside the checkpoint.
    """

    checkpoint: Checkpoint
    soul: bytes
    planned: tuple[Planned, ...]
    claim: Path | None


class Restoring:
    """The one that restores.

    Attributes:
        on_restored: called with the names of conversations that are here now.
    """

    def __init__(
        self,
        conversations: Conversations,
        state: SoulState,
        paths: Paths,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._conversations, self._state = conversations, state
        self._paths, self._now_s = paths, now_s
        self.on_restored: Callable[[Sequence[str]], None] = lambda _: None

    async def restore(
        self,
        path: Path,
        secret: bytes | None,
        names: Sequence[str],
        *,
        dry: bool = False,
        anyway: bool = False,
        tell: Tell = tell_nobody,
    ) -> Restored:
        """Have a checkpoint's conversations here (none named: all).

        Args:
            secret: the Soul's; None: this Body's own.
            dry: only say what would be.
            anyway: though it is known to be old, or another Body may go on with them.
        Raises: BadCheckpoint, BadRequest (it is old, or elsewhere; what is here is another of
            that name), ConversationBusy, StoreBroken, StoreFull.
        """
        async with self._state.changing:
            soul = await trio.to_thread.run_sync(self._soul, secret)
            tell("decrypting", 0, 0)
            told = told_from_thread(tell, "opening")
            checkpoint = await trio.to_thread.run_sync(
                lambda: open_checkpoint(read_checkpoint(path), soul, told), abandon_on_cancel=True
            )
            holder = await trio.to_thread.run_sync(neuron_signer, self._paths.neuron_key)
            claim = await trio.to_thread.run_sync(claim_beside, path)
            if claim is not None and claim.soul != soul.name:
                claim = None
            if not anyway:
                self._check_age(checkpoint, soul, claim, holder.neuron)
            with ExitStack() as held:
                planned = await self._plan(checkpoint, names, held, tell)
                if dry:
                    return Restored(checkpoint, soul.name, planned, None)
                with trio.CancelScope(shield=True):
                    mine = self._claim_of(checkpoint, soul, claim, holder.neuron, planned)
                    await self._commit(planned, self._known_after(checkpoint, claim, mine), tell)
                    written = await self._tell(path, mine, soul)
        self.on_restored([each.name for each in planned])
        return Restored(checkpoint, soul.name, planned, written)

    def _soul(self, secret: bytes | None) -> Soul:
        return Soul(secret) if secret is not None else read_soul(self._paths.soul_key)

    def _check_age(
        self, checkpoint: Checkpoint, soul: Soul, claim: Claim | None, own: NeuronId
    ) -> None:
        """Raises: BadRequest where it is known not to be the last, or that another may go on."""
        known = self._state.of(soul.name)
        anyway = "gliad restore FILE --anyway takes it all the same"
        if claim is not None and claim.epoch > checkpoint.epoch and claim.holder != own:
            raise BadRequest(
                f"another Body ({claim.holder.hex()[:12]}) has restored it since", hint=anyway
            )
        if checkpoint.sequence == known.sequence and checkpoint.epoch < known.epoch:
            raise BadRequest(
                f"checkpoint {checkpoint.sequence} was restored by a Body already",
                hint=f"{anyway}; what says more here stays",
            )
        if checkpoint.sequence < known.sequence or checkpoint.epoch < known.epoch:
            raise BadRequest(
                f"an older checkpoint: number {checkpoint.sequence} of move {checkpoint.epoch}, "
                f"while number {known.sequence} of move {known.epoch} is known here",
                hint=f"restore the last one; {anyway}",
            )
        now_us = int(self._now_s() * _SECOND_US)
        left_us = checkpoint.lease_us + _LEEWAY_US - now_us
        if checkpoint.lease_us and left_us > 0 and checkpoint.holder != own:
            raise BadRequest(
                f"the Body that made it may go on for {left_us // _SECOND_US:,} s more",
                hint=f"wait, or where that Body is gone for good: {anyway}",
            )

    async def _plan(
        self, checkpoint: Checkpoint, names: Sequence[str], held: ExitStack, tell: Tell
    ) -> tuple[Planned, ...]:
        """Raises: BadRequest, ConversationBusy; afterwards nobody else is at them."""
        told = told_from_thread(tell, "checking")
        journals = await trio.to_thread.run_sync(read_files, checkpoint, told)
        found = {
            journal.replay.head.begin.name: (data, journal)
            for data, journal in zip(checkpoint.files, journals, strict=True)
        }
        absent = [name for name in names if name not in found]
        if absent:
            raise BadRequest(
                f"no conversation {absent[0][:80]!r} is in it", hint="gliad restore FILE --dry-run"
            )
        planned = []
        for name in names or found:
            held.enter_context(self._conversations.restoring(name))
            data, journal = found[name]
            here = b""
            if name in self._conversations:
                past = self._conversations.past([name], at_them=True)
                here = await trio.to_thread.run_sync(past.data, name)
            planned.append(Planned(name, _what(name, here, data), data, journal))
        return tuple(planned)

    def _claim_of(
        self,
        checkpoint: Checkpoint,
        soul: Soul,
        others: Claim | None,
        own: NeuronId,
        planned: Sequence[Planned],
    ) -> Claim:
        """What this Body has from now on."""
        epochs = [self._state.of(soul.name).epoch, checkpoint.epoch]
        return Claim(
            soul=soul.name,
            epoch=max([*epochs, others.epoch] if others is not None else epochs) + 1,
            sequence=checkpoint.sequence,
            time_us=int(self._now_s() * _SECOND_US),
            holder=own,
            conversations=tuple(sorted(id_of(p.journal.replay.head.begin) for p in planned)),
        )

    def _known_after(self, checkpoint: Checkpoint, others: Claim | None, mine: Claim) -> Known:
        moves = with_bodies(self._state.of(mine.soul), checkpoint.holder)
        for claim in (others, mine):
            moves = joined(moves, claim) if claim is not None else moves
        return structs.replace(self._state.known.after(moves), lease_us=0)

    async def _commit(self, planned: Sequence[Planned], known: Known, tell: Tell) -> None:
        files = {each.name: each.data for each in planned if each.what in ("new", "goes_on")}
        told = told_from_thread(tell, "writing", to_the_end=True)
        await trio.to_thread.run_sync(stage, self._paths, files, self._state.encoded(known), told)
        await trio.to_thread.run_sync(finish_restoring, self._paths)
        self._state.take(known)
        for each in planned:
            if each.name in files:
                journal = each.journal
                kept = Kept(journal.replay.head, journal.size_bytes, journal.check)
                self._conversations.was_restored(each.name, kept)

    async def _tell(self, path: Path, claim: Claim, soul: Soul) -> Path | None:
        """Say who has them now: in the data dir, beside the checkpoint where that can be, and to
        peers."""
        data = sign_claim(claim, soul)
        with suppress(OSError):
            await trio.to_thread.run_sync(write_private, self._paths.soul_claim, data)
        self._state.on_heed()
        try:
            await trio.to_thread.run_sync(write_private, claim_path(path), data)
            await self._state.watch(claim_path(path))
        except (OSError, GliaError) as error:
            _log.warning("the claim does not stand beside %s: %s", path, error)
            return None
        return claim_path(path)


def _what(name: str, here: bytes, data: bytes) -> str:
    """Raises: BadRequest where what is here is another."""
    if not here:
        return "new"
    if here == data:
        return "same"
    if data.startswith(here):
        return "goes_on"
    if here.startswith(data):
        return "newer"
    raise BadRequest(
        f"{name} is here, and says something else than in the checkpoint",
        hint=f"gliad fork {name} NEW, gliad forget {name}, then restore; or name those you want",
    )
