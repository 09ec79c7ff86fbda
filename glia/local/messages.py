"""Messages of the local API, version 1 (daemon/spec/local-api.md).

A frame carries one of these as msgpack: a tagged array. Every `Call` has an `id`
chosen by the caller; every `Reply` and `Event` names the call it belongs to. A call
gets zero or more events, then exactly one reply. Calls on one connection may be
pipelined; replies to the memory calls (Match to Flush) keep their order.

gliad calls an attached engine in the same form, down the connection the engine
opened: `Run`, `CancelRun`, `EvictL0`, `ForgetL0`. Ids of the two directions are apart.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from glia.local.values import (
    ConversationValue,
    Count,
    EngineValue,
    Label,
    MessageValue,
    ModelValue,
    Name,
    ProfileValue,
    ReasonValue,
    RunValue,
    SamplingValue,
    TierValue,
    Tokens,
    TurnValue,
    UsageValue,
    WindowValue,
)

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 1024 * 1024


class Call(Struct, frozen=True, array_like=True, tag=True):
    """Base of everything that is answered by one reply."""

    id: Count


class Event(Struct, frozen=True, array_like=True, tag=True):
    """Base of what may come before a reply. `id` names the call."""

    id: Count


class Reply(Struct, frozen=True, array_like=True, tag=True):
    """Base of answers. `id` names the call."""

    id: Count


# -- everybody: hello, status, models --------------------------------------------------


class Hello(Call, frozen=True):
    """First frame of a connection, within 5 s. `kind`: client or engine."""

    protocol: int
    kind: Label
    name: Label


class Welcome(Reply, frozen=True):
    """Carries the arena's file descriptor (SCM_RIGHTS), sealed against writing by clients."""

    protocol: int
    version: str
    pid: int
    arena_bytes: int


class Failed(Reply, frozen=True):
    """The call failed: code, message and hint of the error (glia/errors.py)."""

    code: str
    message: str
    hint: str | None


class Done(Reply, frozen=True):
    """The call succeeded and has nothing to say."""


class Progress(Event, frozen=True):
    """Something long is going on: `done` of `total` (0 = unknown) of `what`."""

    what: str
    done: int
    total: int


class Status(Call, frozen=True):
    """What `gliad status` shows."""


class StatusReply(Reply, frozen=True):
    version: str
    pid: int
    socket: str
    data_dir: str
    uptime_s: float
    tiers: dict[str, TierValue]
    engines: list[EngineValue]
    counters: dict[str, int]
    http: str | None = None  # where the HTTP door is, http://HOST:PORT
    settings: dict[str, str] = {}  # those it was started with, as they stand in glia.toml


class Models(Call, frozen=True):
    """All models this node knows by name."""


class ModelsReply(Reply, frozen=True):
    models: list[ModelValue]


class AddModel(Call, frozen=True):
    """Register a manifest (TOML text, spec/5-manifest.md) under a name, after loading it once.

    Events: Progress. Reply: ModelsReply with the one model.
    """

    name: Label
    manifest: Annotated[str, Meta(max_length=65536)]
    replace: bool = False


class Generate(Call, frozen=True):
    """Continue a prompt.

    Events: Progress (queued, loading, prefill), Emitted. Reply: Generated.
    `dtype` None takes the manifest's.
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


class Emitted(Event, frozen=True):
    """The next tokens of the answer."""

    tokens: Tokens


class Generated(Reply, frozen=True):
    """The whole answer. Final: every window counted in `tip` is durable.

    tip: id of the last full window of prompt and answer, None under one window.
    finish_reason: stop, length, or cancelled.
    ttft_ms: from the call's arrival at gliad to the first token's.
    timings_ms: load (until an engine is ready), the engine's parts, and total.
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


class Cancel(Call, frozen=True):
    """Cancel an earlier Generate of this connection, which then replies `cancelled`."""

    target: Count


class Chain(Call, frozen=True):
    """The windows from genesis to `tip`."""

    tip: Name
    start: Count = 0  # first window wanted: a long chain takes several calls


class ChainReply(Reply, frozen=True):
    windows: list[WindowValue]
    total: int


class Check(Call, frozen=True):
    """Re-verify everything stored. Events: Progress."""


class CheckReply(Reply, frozen=True):
    """Blocks and windows of L2; then the blocks of L1, which are copies of those."""

    checked: int
    bad: int
    windows: int
    bad_windows: int
    l1_checked: int = 0
    l1_bad: int = 0


class Evict(Call, frozen=True):
    """Give a tier's memory back (l0 or l1); its bytes are in the tier below first."""

    tier: Label


class EvictReply(Reply, frozen=True):
    freed_bytes: int
    freed_windows: int


class Conversations(Call, frozen=True):
    """All conversations, last used first, a part at a time from number `start` on."""

    start: Count = 0


class ConversationsReply(Reply, frozen=True):
    conversations: list[ConversationValue]
    total: int


class ReadConversation(Call, frozen=True):
    """One conversation: a part of its messages and of its tokens; ask on until the totals."""

    name: Label
    message_start: Count = 0
    token_start: Count = 0


class ConversationReply(Reply, frozen=True):
    """`tokens`: u32 little-endian each; totals are in `conversation`."""

    conversation: ConversationValue
    messages: list[MessageValue]
    tokens: bytes


class Fork(Call, frozen=True):
    """Make `new` a conversation with the first `num_tokens` tokens of `name` (None: all).

    Nothing is copied but the log. Reply: ConversationReply without messages and tokens.
    """

    name: Label
    new: Label
    num_tokens: Count | None = None


class Forget(Call, frozen=True):
    """Remove a conversation and every byte that nothing else uses. Events: Progress."""

    name: Label


class ForgetReply(Reply, frozen=True):
    """Windows removed and their bytes; windows kept since another conversation uses them."""

    num_windows: int
    freed_bytes: int
    num_shared: int


class Gc(Call, frozen=True):
    """Forget what has expired, drop windows whose chain has a hole, compact. Events: Progress.

    unreferenced: also drop the windows that no conversation uses.
    """

    unreferenced: bool = False


class GcReply(Reply, frozen=True):
    num_conversations: int
    num_windows: int
    freed_bytes: int


class Runs(Call, frozen=True):
    """Requests under way, and the last ones that ended; newest first."""


class RunsReply(Reply, frozen=True):
    runs: list[RunValue]


class Explain(Call, frozen=True):
    """Why a prompt is cached as far as it is, and no further; changes nothing."""

    model: Label
    dtype: Label | None
    tokens: Tokens


class ExplainReply(Reply, frozen=True):
    """`num_matched` leading tokens are known here as whole windows; then why not more.

    tip: the last of these windows, None where there is none.
    """

    num_matched: int
    reasons: list[ReasonValue]
    tip: Name | None = None


class Shutdown(Call, frozen=True):
    """Stop gliad; replies when everything acknowledged is on disk."""


# -- memory: what an engine (ours or another) does -----------------------------------------


class Attach(Call, frozen=True):
    """Bind this connection to a model and profile; the memory calls below refer to it.

    `serves`: name and dtype of the model this engine answers Run calls for; empty for a
    guest that only uses the memory calls.
    """

    model_id: Name
    profile: ProfileValue
    numerics_class: Label
    serves: Label = ""
    dtype: Label = ""
    context_tokens: Count = 0
    files_dir: str = ""


class Staging(Call, frozen=True):
    """Ask for this connection's staging area; the reply (Done) carries its descriptor.

    Asking again replaces it.
    """

    size_bytes: Count


class Match(Call, frozen=True):
    """The longest known chain of whole windows for these tokens, own numerics class only.

    Changes no lease and no LRU order.
    """

    tokens: Tokens


class Matched(Reply, frozen=True):
    windows: list[Name]


class Known(Call, frozen=True):
    """Which of these windows are whole in L1 or L2. Changes no lease and no LRU order.

    Reply: Matched, of those.
    """

    windows: Annotated[list[Name], Meta(max_length=16384)]


class Lease(Call, frozen=True):
    """Pin windows in L1, loading from L2 what is not there.

    The leading windows that could be had are leased; a hole ends the list.
    """

    windows: Annotated[list[Name], Meta(max_length=4096)]


class Leased(Reply, frozen=True):
    """`offsets`: u64 little-endian, one per layer of each window: where the *particle* starts
    in the arena (the payload follows its header). `tiers`: one digit a window, 1 = was in L1,
    2 = came from L2, 3 = came from a peer. Shorter than asked where a window could not be had.
    """

    lease: Count
    offsets: bytes
    tiers: bytes


class Release(Call, frozen=True):
    """Give a lease back. Its windows may be evicted from now on."""

    lease: Count


class Seal(Call, frozen=True):
    """Name full windows whose raw payloads stand in staging.

    Layout at `offset`: [windows][layers] payloads, each in spec/3-block.md's form, no gaps.
    `prev`: the window before them, None at the start. `num_steps`: decode steps run since
    this connection's last Seal (for the hot bias). Blocks whose bytes are known already
    are referenced, not kept twice. The staging bytes may be reused after the reply.
    """

    prev: Name | None
    position_start: Count
    tokens: Tokens
    offset: Count
    num_steps: Count = 0


class Sealed(Reply, frozen=True):
    windows: list[Name]
    num_known: int  # how many of them were known before


class Flush(Call, frozen=True):
    """Replies when these windows are durable in L2.

    Raises StoreFull where they cannot be.
    """

    windows: list[Name]


# -- gliad calls an engine --------------------------------------------------------------


class Run(Call, frozen=True):
    """Generate's request, handed to the engine that serves the model. Events: Progress, Emitted.

    Reply: Generated (ttft_ms and timings from the engine's clock), or Failed.
    """

    tokens: Tokens
    max_tokens: int
    sampling: SamplingValue
    stop_tokens: list[int]
    stop: list[str]
    ignore_eos: bool


class CancelRun(Call, frozen=True):
    """Cancel a Run; it replies `cancelled`. Reply: Done."""

    target: Count


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


class EngineStats(Event, frozen=True):
    """From an engine, after each run and eviction: its L0 and queue. `id` is the Attach call's."""

    l0: TierValue
    num_running: int
    num_waiting: int


ClientMessage = (
    Hello
    | Status
    | Models
    | AddModel
    | Generate
    | Cancel
    | Chain
    | Check
    | Evict
    | Conversations
    | ReadConversation
    | Fork
    | Forget
    | Gc
    | Runs
    | Explain
    | Shutdown
    | Attach
    | Staging
    | Match
    | Known
    | Lease
    | Release
    | Seal
    | Flush
    | Ready
    | EngineStats
    | Progress
    | Emitted
    | Generated
    | EvictReply
    | Done
    | Failed
)

DaemonMessage = (
    Welcome
    | Failed
    | Done
    | Progress
    | StatusReply
    | ModelsReply
    | Emitted
    | Generated
    | ChainReply
    | CheckReply
    | EvictReply
    | ConversationsReply
    | ConversationReply
    | ForgetReply
    | GcReply
    | RunsReply
    | ExplainReply
    | Matched
    | Leased
    | Sealed
    | Run
    | CancelRun
    | EvictL0
    | ForgetL0
)

encoder = msgspec.msgpack.Encoder()
client_decoder: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
daemon_decoder: msgspec.msgpack.Decoder[DaemonMessage] = msgspec.msgpack.Decoder(DaemonMessage)
