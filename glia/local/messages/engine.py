"""Messages of an engine that serves a model: what gliad asks of it, what it tells."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.messages.base import Call, Event, Reply
from glia.local.values import (
    ChosenValue,
    Count,
    DomainValue,
    FindingValue,
    Name,
    RerunValue,
    SamplingValue,
    TierValue,
    Tokens,
    UnitValue,
)

MAX_CHAIN = 16384  # windows
ChainNames = Annotated[list[Name], Meta(max_length=MAX_CHAIN)]


class Run(Call, frozen=True):
    """Generate's request, handed to the engine that serves the model. Events: Progress, Emitted.

    Reply: Generated (ttft_ms and timings from the engine's clock), or Failed.

    exact: Match is asked for the own numerics class only.
    chosen: the tokens are a log, to be run again without Match, whatever would be chosen; of
        these spans Emitted tells what that is. None: an answer is wanted.
    domain: of the group that may read its windows; Match and Seal are told of it.
    """

    tokens: Tokens
    max_tokens: int
    sampling: SamplingValue
    stop_tokens: list[int]
    stop: list[str]
    ignore_eos: bool
    exact: bool = True
    chosen: list[ChosenValue] | None = None
    domain: DomainValue | None = None


class CancelRun(Call, frozen=True):
    """Cancel a Run; it replies `cancelled`. Reply: Done."""

    target: Count


class Meet(Call, frozen=True):
    """What peers sent of a Run's prompt is there from `position` on: Adopt it, once there.

    Said again, with a lower position, as more comes from the back. Reply: Done.
    """

    target: Count
    position: Count


class AuditWindow(Call, frozen=True):
    """Compute a window again, from those before it as they are, and compare. Reply: AuditedWindow.

    chain: from genesis to the window. tokens: its own.
    """

    chain: ChainNames
    tokens: Tokens
    canonical: bool


class AuditedWindow(Reply, frozen=True):
    """`calibrated`: whether it was measured for this model how far off honest windows are."""

    finding: FindingValue
    spent_s: float
    calibrated: bool


class RerunWindows(Call, frozen=True):
    """Run windows of a log again, in the engine's own arithmetic, from those before each.

    Reply: RanAgain. Nothing of it gets a name.

    chain: from genesis on. units: in order.
    """

    chain: ChainNames
    units: Annotated[list[UnitValue], Meta(min_length=1, max_length=16)]


class RanAgain(Reply, frozen=True):
    """What came of each."""

    found: list[RerunValue]


class TakeLimits(Call, frozen=True):
    """It was measured anew how far off honest windows are: read that. Reply: Done."""


class EvictL0(Call, frozen=True):
    """Drop all unpinned L0 slots. Reply: EvictReply."""


class ForgetL0(Call, frozen=True):
    """Drop windows that are no longer Known, and zero every slot and buffer that no sequence uses.

    Reply: EvictReply of what was dropped; a window that a sequence still uses stays.
    """


class Ready(Event, frozen=True):
    """From an engine after its self-test, once: it can run. `id` is the Attach call's."""

    l0_cap_bytes: int
    warnings: list[str]
    memory_bytes: int = 0  # resident in this process, without what is shared
    tokens_per_s: float = 0.0  # computed of a short prompt; 0 where it was not measured


class EngineStats(Event, frozen=True):
    """From an engine, after each run and eviction: its L0 and queue. `id` is the Attach call's."""

    l0: TierValue
    num_running: int
    num_waiting: int
