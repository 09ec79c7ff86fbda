"""Messages about traces: making one, and running a log again."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.messages.base import Call, Reply
from glia.local.values import ChosenValue, Count, Label, Name

MAX_REPLAY_BYTES = 960 * 1024  # of tokens: what a frame has room for


class Trace(Call, frozen=True):
    """A conversation's trace (spec/17-trace.md), a part at a time: from byte `start` on.

    The same conversation has the same trace: where it goes on between two parts, the whole
    is not signed.
    """

    name: Label
    start: Count = 0


class TraceReply(Reply, frozen=True):
    """A part of it. total: bytes of all."""

    data: bytes
    total: int


class Replay(Call, frozen=True):
    """Run a log again on a model, without anything that is stored. Events: Progress.

    What comes of it is not kept. Failed `bad_request` where the model's id is another.

    tokens: the log, u32 little-endian each; it begins with one that was asked.
    chosen: which of them were chosen, in order.
    """

    model: Label
    dtype: Label
    model_id: Name
    tokens: Annotated[bytes, Meta(max_length=MAX_REPLAY_BYTES)]
    chosen: list[ChosenValue]


class Replayed(Reply, frozen=True):
    """What came of it.

    windows: ids of the leading full windows, in the class and the profile named.
    num_same: of `chosen`'s tokens, those that would be chosen again; `differing`: positions of
        the first that would not.
    warning: why there are not all windows, if so.
    """

    windows: list[Name]
    numerics_class: str
    profile_id: Name
    num_same: int
    differing: list[int]
    duration_s: float
    warning: str | None = None
