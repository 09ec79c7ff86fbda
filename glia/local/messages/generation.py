"""Messages about requests: continuing a prompt, what of it is known and why, what runs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.messages.base import Call, Event, Reply
from glia.local.values import (
    Count,
    FetchedValue,
    Label,
    Name,
    NameStart,
    ReasonValue,
    RunValue,
    SamplingValue,
    Tokens,
    TurnValue,
    UsageValue,
    WindowValue,
)


class Generate(Call, frozen=True):
    """Continue a prompt.

    Events: Progress (queued, loading, prefill), Emitted. Reply: Generated.
    `dtype` None takes the manifest's.

    `dtype` float64 is the canonical class.

    exact: use no K/V of another numerics class than the engine's, or canonical; None: as
        network.exact says. What is computed in float64 uses none in any case.
    """

    model: Label
    dtype: Label | None
    tokens: Tokens
    max_tokens: Annotated[int, Meta(ge=1, le=2**20)]
    sampling: SamplingValue
    stop_tokens: list[int]
    stop: Annotated[list[Annotated[str, Meta(min_length=1, max_length=256)]], Meta(max_length=16)]
    ignore_eos: bool = False
    turn: TurnValue | None = None  # None: an anonymous conversation of tokens only
    exact: bool | None = None


class Emitted(Event, frozen=True):
    """The next tokens of the answer."""

    tokens: Tokens


class Generated(Reply, frozen=True):
    """The whole answer. Final: every window counted in `tip` is durable.

    tip: id of the last full window of prompt and answer, None under one window.
    finish_reason: stop, length, or cancelled.
    ttft_ms: from the call's arrival at gliad to the first token's.
    timings_ms: load (until an engine is ready), find and fetch (asking peers, and taking what
        they have, where that was done), the engine's parts, and total.
    warning: why some windows could not be kept, if so.
    """

    tokens: Tokens
    finish_reason: str
    tip: Name | None
    usage: UsageValue
    ttft_ms: float
    timings_ms: dict[str, float]
    warning: str | None = None
    conversation: str = ""  # by gliad: where it was recorded, "" where it was not kept
    exact: bool = True  # by gliad: all K and V are of the engine's own class, or canonical
    is_tainted: bool = False  # by gliad: it used K and V of peers that do not hold, it turned out
    fetched: FetchedValue | None = None  # by gliad
    numerics_class: Label = ""  # by gliad: the engine's


class Cancel(Call, frozen=True):
    """Cancel an earlier Generate of this connection, which then replies `cancelled`."""

    target: Count


class Runs(Call, frozen=True):
    """Requests under way, and the last ones that ended; newest first."""


class RunsReply(Reply, frozen=True):
    runs: list[RunValue]


class Explain(Call, frozen=True):
    """Why a prompt is cached as far as it is, and no further; changes nothing.

    exact, turn: as Generate's; without a turn only what is public or private is looked for.
    """

    model: Label
    dtype: Label | None
    tokens: Tokens
    exact: bool | None = None
    turn: TurnValue | None = None


class ExplainReply(Reply, frozen=True):
    """`num_matched` leading tokens are known here as whole windows; then why not more.

    tip: the last of these windows, None where there is none.
    """

    num_matched: int
    reasons: list[ReasonValue]
    tip: Name | None = None


class Chain(Call, frozen=True):
    """The windows from genesis to `tip`, a window that is here."""

    tip: NameStart
    start: Count = 0  # first window wanted: a long chain takes several calls


class ChainReply(Reply, frozen=True):
    windows: list[WindowValue]
    total: int
