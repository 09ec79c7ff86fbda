"""What people ask of a Soul's checkpoints. No state of its own."""

from __future__ import annotations

from pathlib import Path

import trio

from daemon.claim_files import read_claim
from daemon.link import Deliver
from daemon.parts import Parts
from daemon.restoring import Planned, Restored
from daemon.soul_key import read_soul
from daemon.telling import Tell
from glia.errors import BadCheckpoint, BadRequest, MalformedParticle
from glia.local import messages as m
from glia.local.values import MovedValue, RestoredValue

CheckpointCall = m.Checkpoint | m.Restore | m.Heed | m.Moves

_CLAIM = "FILE.claim is beside what was restored"
_MOST_TOLD = 1000
_SECOND_US = 1_000_000


async def answer(parts: Parts, call: CheckpointCall, post: Deliver) -> m.Reply:
    """The reply to a call. Raises: GliaError."""

    def tell(what: str, done: int, total: int) -> None:
        post(m.Progress(call.id, what, done, total))

    match call:
        case m.Checkpoint():
            return await _checkpoint(parts, call, tell)
        case m.Restore():
            path, names, secret = _path(call.path), call.names, call.secret
            restored = await parts.restoring.restore(
                path, secret, names, dry=call.dry, anyway=call.anyway, tell=tell
            )
            return _restored(call, restored)
        case m.Heed():
            await _heed(parts, _path(call.path))
            return await _moves(parts, call)
        case m.Moves():
            return await _moves(parts, call)


async def _checkpoint(parts: Parts, call: m.Checkpoint, tell: Tell) -> m.CheckpointReply:
    path = _path(call.path)
    made = await parts.checkpointing.make(call.names, path, is_kept=call.is_kept, tell=tell)
    return m.CheckpointReply(
        id=call.id,
        soul=made.soul,
        epoch=made.epoch,
        sequence=made.sequence,
        num_conversations=made.num_conversations,
        num_moved=made.num_moved,
        size_bytes=made.size_bytes,
    )


def _restored(call: m.Restore, restored: Restored) -> m.RestoreReply:
    checkpoint = restored.checkpoint
    return m.RestoreReply(
        id=call.id,
        soul=restored.soul,
        epoch=checkpoint.epoch,
        sequence=checkpoint.sequence,
        time_s=checkpoint.time_us / _SECOND_US,
        holder=checkpoint.holder,
        conversations=[_value(each) for each in restored.planned[:_MOST_TOLD]],
        total=len(restored.planned),
        claim=str(restored.claim) if restored.claim is not None else "",
    )


def _value(planned: Planned) -> RestoredValue:
    head = planned.journal.replay.head
    return RestoredValue(
        name=planned.name,
        what=planned.what,
        model=head.begin.model,
        model_id=head.begin.model_id,
        num_tokens=head.num_tokens,
        num_messages=head.num_messages,
        tip=head.tip,
    )


async def _heed(parts: Parts, path: Path) -> None:
    """Raises: BadCheckpoint (no claim, or of another Soul), BadRequest (nothing is there)."""
    try:
        claim = await trio.to_thread.run_sync(read_claim, path)
    except MalformedParticle as error:
        raise BadCheckpoint(error.message, hint=_CLAIM) from error
    if claim is None:
        raise BadRequest(f"{path}: No such file", hint=_CLAIM)
    if claim.soul.hex() not in (each.soul for each in parts.soul.known.souls):
        raise BadCheckpoint(
            "a claim of a Soul that made no checkpoint here",
            hint="it is for the Body that made the checkpoint",
        )
    await parts.soul.heed(claim)


async def _moves(parts: Parts, call: m.Heed | m.Moves) -> m.MovesReply:
    try:
        soul = (await trio.to_thread.run_sync(read_soul, parts.paths.soul_key)).name
    except BadRequest:
        soul = None
    known = parts.soul.known
    of_soul = parts.soul.of(soul) if soul is not None else None
    away = [c for moves in known.souls for c in moves.claims if parts.soul.is_others(c)]
    last = max(away, key=lambda claimed: claimed.time_us, default=None)
    value = MovedValue(
        epoch=of_soul.epoch if of_soul is not None else 0,
        sequence=of_soul.sequence if of_soul is not None else 0,
        lease_s=known.lease_us / _SECOND_US,
        num_moved=parts.soul.num_elsewhere,
        holder=last.holder if last is not None else "",
        moved_s=last.time_us / _SECOND_US if last is not None else 0.0,
    )
    return m.MovesReply(call.id, soul, value)


def _path(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or "\0" in text:
        raise BadRequest(f"not an absolute path: {text[:80]!r}")
    return path
