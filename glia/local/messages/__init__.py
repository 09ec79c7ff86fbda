"""Messages of the local API, version 1 (daemon/spec/local-api.md).

A frame carries one of these as msgpack: a tagged array. Every `Call` has an `id`
chosen by the caller; every `Reply` and `Event` names the call it belongs to. A call
gets zero or more events, then exactly one reply. Calls on one connection may be
pipelined; replies to the memory calls (Match to Flush) keep their order.

gliad calls an attached engine in the same form, down the connection the engine
opened: `Run`, `CancelRun`, `Meet`, `AuditWindow`, `RerunWindows`, `TakeLimits`,
`EvictL0`, `ForgetL0`. Ids of the two directions are apart.

The modules of this package have the messages by what they are about. Here is what either
side may send, and whoever speaks takes it from here.
"""

from __future__ import annotations

import msgspec

from glia.local.messages.base import Call, Done, Event, Failed, Progress, Reply
from glia.local.messages.checkpoints import (
    Checkpoint,
    CheckpointReply,
    Heed,
    Moves,
    MovesReply,
    Restore,
    RestoreReply,
)
from glia.local.messages.conversations import (
    ConversationReply,
    Conversations,
    ConversationsReply,
    Forget,
    ForgetReply,
    Fork,
    Gc,
    GcReply,
    Publish,
    PublishReply,
    ReadConversation,
    Withdraw,
    WithdrawReply,
)
from glia.local.messages.engine import (
    MAX_CHAIN,
    AuditedWindow,
    AuditWindow,
    CancelRun,
    EngineStats,
    EvictL0,
    ForgetL0,
    Meet,
    RanAgain,
    Ready,
    RerunWindows,
    Run,
    TakeLimits,
)
from glia.local.messages.generation import (
    Cancel,
    Chain,
    ChainReply,
    Emitted,
    Explain,
    ExplainReply,
    Generate,
    Generated,
    Runs,
    RunsReply,
)
from glia.local.messages.groups import (
    Card,
    CardReply,
    CreateGroup,
    Grant,
    GrantReply,
    Groups,
    GroupsReply,
    JoinGroup,
    LeaveGroup,
    LeftReply,
    Revoke,
    RotateGroup,
    ShowGroup,
)
from glia.local.messages.links import Links, LinksReply, NextBlock, NextBlockReply
from glia.local.messages.memory import (
    Adopt,
    Attach,
    Examined,
    ExaminedReply,
    Flush,
    Known,
    Lease,
    Leased,
    Match,
    Matched,
    Release,
    Seal,
    Sealed,
    Staging,
)
from glia.local.messages.node import (
    AddModel,
    Check,
    CheckReply,
    Evict,
    EvictReply,
    Hello,
    Models,
    ModelsReply,
    Shutdown,
    Status,
    StatusReply,
    Welcome,
)
from glia.local.messages.peers import (
    AddPeer,
    BanPeer,
    Fetch,
    FetchReply,
    ForgetPeer,
    Identity,
    IdentityReply,
    Peers,
    PeersReply,
    Where,
    WhereReply,
)
from glia.local.messages.traces import (
    MAX_REPLAY_BYTES,
    Replay,
    Replayed,
    Sample,
    Sampled,
    Trace,
    TraceReply,
)
from glia.local.messages.truth import (
    Audit,
    AuditReply,
    Calibrate,
    CalibrateReply,
    Evidence,
    EvidenceReply,
    Neurons,
    NeuronsReply,
    Trust,
)

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 1024 * 1024

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
    | Publish
    | Withdraw
    | Gc
    | Runs
    | Explain
    | Identity
    | Peers
    | AddPeer
    | ForgetPeer
    | BanPeer
    | Links
    | NextBlock
    | Audit
    | Calibrate
    | Evidence
    | Neurons
    | Trust
    | Where
    | Fetch
    | Trace
    | Replay
    | Sample
    | Groups
    | ShowGroup
    | CreateGroup
    | RotateGroup
    | LeaveGroup
    | JoinGroup
    | Card
    | Grant
    | Revoke
    | Checkpoint
    | Restore
    | Heed
    | Moves
    | Shutdown
    | Attach
    | Staging
    | Match
    | Known
    | Adopt
    | Lease
    | Examined
    | Release
    | Seal
    | Flush
    | Ready
    | EngineStats
    | Progress
    | Emitted
    | Generated
    | EvictReply
    | AuditedWindow
    | RanAgain
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
    | PublishReply
    | WithdrawReply
    | GcReply
    | RunsReply
    | ExplainReply
    | IdentityReply
    | PeersReply
    | LeftReply
    | LinksReply
    | NextBlockReply
    | AuditReply
    | CalibrateReply
    | EvidenceReply
    | NeuronsReply
    | WhereReply
    | FetchReply
    | TraceReply
    | Replayed
    | Sampled
    | GroupsReply
    | CardReply
    | GrantReply
    | CheckpointReply
    | RestoreReply
    | MovesReply
    | Matched
    | Leased
    | ExaminedReply
    | Sealed
    | Run
    | AuditWindow
    | RerunWindows
    | TakeLimits
    | CancelRun
    | Meet
    | EvictL0
    | ForgetL0
)

encoder = msgspec.msgpack.Encoder()
client_decoder: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
daemon_decoder: msgspec.msgpack.Decoder[DaemonMessage] = msgspec.msgpack.Decoder(DaemonMessage)

__all__ = [
    "MAX_CHAIN", "MAX_FRAME_BYTES", "MAX_REPLAY_BYTES", "PROTOCOL_VERSION", "AddModel", "AddPeer",
    "Adopt", "Attach", "Audit", "AuditReply", "AuditWindow", "AuditedWindow", "BanPeer",
    "Calibrate", "CalibrateReply", "Call", "Cancel", "CancelRun", "Card", "CardReply", "Chain",
    "ChainReply", "Check", "CheckReply", "Checkpoint", "CheckpointReply", "ClientMessage",
    "ConversationReply", "Conversations", "ConversationsReply", "CreateGroup", "DaemonMessage",
    "Done", "Emitted", "EngineStats", "Event", "Evict", "EvictL0", "EvictReply", "Evidence",
    "EvidenceReply", "Examined", "ExaminedReply", "Explain", "ExplainReply", "Failed", "Fetch",
    "FetchReply", "Flush", "Forget", "ForgetL0", "ForgetPeer", "ForgetReply", "Fork", "Gc",
    "GcReply", "Generate", "Generated", "Grant", "GrantReply", "Groups", "GroupsReply", "Heed",
    "Hello", "Identity", "IdentityReply", "JoinGroup", "Known", "Lease", "Leased", "LeaveGroup",
    "LeftReply", "Links", "LinksReply", "Match", "Matched", "Meet", "Models", "ModelsReply",
    "Moves", "MovesReply", "Neurons", "NeuronsReply", "NextBlock", "NextBlockReply", "Peers",
    "PeersReply", "Progress", "Publish", "PublishReply", "RanAgain", "ReadConversation", "Ready",
    "Release", "Replay", "Replayed", "Reply", "RerunWindows", "Restore", "RestoreReply", "Revoke",
    "RotateGroup", "Run", "Runs", "RunsReply", "Sample", "Sampled", "Seal", "Sealed", "ShowGroup",
    "Shutdown", "Staging", "Status", "StatusReply", "TakeLimits", "Trace", "TraceReply", "Trust",
    "Welcome", "Where", "WhereReply", "Withdraw", "WithdrawReply", "client_decoder",
    "daemon_decoder", "encoder",
]  # fmt: skip
