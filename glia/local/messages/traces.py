"""Messages about traces: making one, and running a log again."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.messages.base import Call, Reply
from glia.local.values import ChosenValue, Count, Label, Name, SampledValue

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


class Sample(Call, frozen=True):
    """Run a share of a log's windows again, each from those before it as they are here.

    Events: Progress. Failed `bad_request` where the model's id is another, `not_found` where the
    windows are not here. Nothing of it is kept.

    tip: the last of its windows. rest: the tokens behind it, fewer than a window has.
    chosen: as in Replay. share: of its units, at least one; `rest` is one. seed: which are drawn;
        None: nobody can foresee that.
    """

    model: Label
    dtype: Label
    model_id: Name
    tip: Name
    rest: Annotated[bytes, Meta(max_length=2**18)]
    chosen: list[ChosenValue]
    share: Annotated[float, Meta(gt=0, le=1)]
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class Sampled(Reply, frozen=True):
    """What came of it.

    leading: what the windows from genesis to `tip` say (glia.graph.sampled.leading).
    num_units: from which were drawn.
    """

    leading: Name
    profile_id: Name
    num_units: Count
    found: list[SampledValue]
    numerics_class: str
    calibrated: bool
    duration_s: float
