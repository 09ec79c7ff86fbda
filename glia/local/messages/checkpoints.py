"""Messages about a Soul: its checkpoints, and moving with them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.messages.base import Call, Reply
from glia.local.values import Label, MovedValue, Name, RestoredValue

FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
Conversations = Annotated[list[Label], Meta(max_length=4096)]


class Checkpoint(Call, frozen=True):
    """Write a checkpoint (spec/18-checkpoint.md) to an absolute path. Events: Progress.

    names: of conversations; none: all that are here.
    is_kept: it stays there: where a claim appears beside it, this Body lets go.
    """

    names: Conversations
    path: FilePath
    is_kept: bool = True


class CheckpointReply(Reply, frozen=True):
    """num_moved: conversations that were left out, as another Body has them."""

    soul: Name
    epoch: int
    sequence: int
    num_conversations: int
    num_moved: int
    size_bytes: int


class Restore(Call, frozen=True):
    """Have the conversations of a checkpoint here: all that are asked for, or none.

    Events: Progress.

    names: of conversations; none: all.
    secret: the Soul's; None: this Body's own.
    dry: only say what would be.
    anyway: though it is known to be old, or another Body may go on with them.
    """

    path: FilePath
    names: Conversations
    secret: Name | None = None
    dry: bool = False
    anyway: bool = False


class RestoreReply(Reply, frozen=True):
    """What was restored, or would be; `conversations`: the first of `total`.

    holder: the neuron of the Body that made it.
    claim: where the claim stands that makes that Body let go; "" where it is in the data dir
        only, as soul.claim.
    """

    soul: Name
    epoch: int
    sequence: int
    time_s: float
    holder: Name
    conversations: list[RestoredValue]
    total: int
    claim: str


class Heed(Call, frozen=True):
    """Let go what a claim says another Body has. Reply: MovesReply."""

    path: FilePath


class Moves(Call, frozen=True):
    """What this Body knows of its Soul's moves."""


class MovesReply(Reply, frozen=True):
    """soul: None where there is none here."""

    soul: Name | None
    moves: MovedValue
