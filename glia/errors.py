"""Every error of the project, in one tree. The class says who is to blame.

    GliaError
    ├─ NotFound                    nobody reachable has it: compute instead
    ├─ IntegrityError              the bytes accuse somebody
    │   ├─ HashMismatch              not the bytes that were named: blames the carrier (disk, peer)
    │   ├─ MalformedParticle         rightly named, does not fit its grammar: blames the writer
    │   └─ BadCheckpoint             another Soul's, altered, or none at all: nothing is restored
    ├─ CapacityError               a cap was reached before anything was allocated
    │   ├─ PoolExhausted             L0: every slot is pinned, or the sequence is larger than L0
    │   ├─ ArenaExhausted            L1: everything is pinned or not yet on disk
    │   ├─ StoreFull                 L2: size cap or disk is full
    │   └─ QuotaExceeded             a client asked for more than one client may have
    ├─ StoreError                  the store cannot be used as it is
    │   ├─ StoreLocked               another process has it
    │   ├─ StoreVersion              written by a newer format version
    │   └─ StoreBroken               the file system or LevelDB refused
    ├─ ProtocolError               a frame or message broke the rules
    │   ├─ LocalProtocolError        our side
    │   └─ RemoteProtocolError       their side: the connection is closed
    ├─ NetworkError                a peer failed us: ask another, or do without
    │   ├─ PeerUnreachable           it cannot be dialled, or its address is not known
    │   ├─ PeerLost                  the connection or stream ended under a call
    │   └─ PeerRefused               it does not speak the protocol, or is banned here
    ├─ NotPermitted                no right to it, or none that holds: ask whoever grants it
    ├─ EngineError                 an inference engine failed
    │   ├─ EngineDied                the process ended under a request
    │   ├─ EngineFailed              a step raised (the engine lives on)
    │   └─ Cancelled                 the request was cancelled
    ├─ ModelError                  a model cannot be used
    │   ├─ BadModelFile              truncated, malformed, unsafe
    │   ├─ ModelRefused              well-formed, but its type or self-test is not acceptable
    │   └─ UnknownModel              no model of that name
    └─ UserError                   what was asked for cannot be; exit 2, no traceback
        ├─ ConfigError               glia.toml: file, line, key
        ├─ ManifestError             a .model manifest: file, line, key
        ├─ PromptError               empty, too long, token out of range, not UTF-8
        ├─ NotRunning                no gliad at that data dir
        ├─ AlreadyRunning            there is one already
        ├─ UnknownConversation       no conversation of that name
        ├─ ConversationMoved         another Body of its Soul has it now
        ├─ ConversationBusy          it is being answered in, or forgotten: wait, or stop that
        └─ BadRequest                any other argument that cannot be
            └─ BadField                a field of an HTTP request: its path, and what is wrong

Each class has a `code` (stable, travels on the local socket), an `exit_code`
for the CLI, and `retry`: whether asking again, later or elsewhere, can help.
Each instance has a `hint`: what to type next.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Retry = Literal["never", "later", "elsewhere"]

__all__ = [
    "AlreadyRunning",
    "ArenaExhausted",
    "BadCalibration",
    "BadCheckpoint",
    "BadField",
    "BadModelFile",
    "BadRequest",
    "Cancelled",
    "CapacityError",
    "ConfigError",
    "ConversationBusy",
    "ConversationMoved",
    "EngineDied",
    "EngineError",
    "EngineFailed",
    "GliaError",
    "HashMismatch",
    "IntegrityError",
    "LocalProtocolError",
    "MalformedParticle",
    "ManifestError",
    "ModelError",
    "ModelRefused",
    "NetworkError",
    "NotFound",
    "NotPermitted",
    "NotRunning",
    "PeerLost",
    "PeerRefused",
    "PeerUnreachable",
    "PoolExhausted",
    "PromptError",
    "ProtocolError",
    "QuotaExceeded",
    "RemoteProtocolError",
    "StoreBroken",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreVersion",
    "UnknownConversation",
    "UnknownModel",
    "UserError",
    "error_from_code",
]


class GliaError(Exception):
    """Base of all errors of the project.

    Args:
        message: what happened, one sentence without a full stop.
        hint: what to type or change next, if there is such a thing.
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = "never"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotFound(GliaError):
    code = "not_found"
    exit_code = 3
    retry = "elsewhere"


class IntegrityError(GliaError):
    code = "integrity"
    exit_code = 4
    retry = "elsewhere"


class HashMismatch(IntegrityError):
    code = "hash_mismatch"


class MalformedParticle(IntegrityError):
    code = "malformed_particle"


class BadCheckpoint(IntegrityError):
    code = "bad_checkpoint"


class CapacityError(GliaError):
    code = "capacity"
    exit_code = 5
    retry = "later"


class PoolExhausted(CapacityError):
    code = "pool_exhausted"


class ArenaExhausted(CapacityError):
    code = "arena_exhausted"


class StoreFull(CapacityError):
    code = "store_full"


class QuotaExceeded(CapacityError):
    code = "quota_exceeded"


class StoreError(GliaError):
    code = "store"
    exit_code = 6


class StoreLocked(StoreError):
    code = "store_locked"
    retry = "later"


class StoreVersion(StoreError):
    code = "store_version"


class StoreBroken(StoreError):
    code = "store_broken"


class ProtocolError(GliaError):
    code = "protocol"
    exit_code = 7


class LocalProtocolError(ProtocolError):
    code = "local_protocol"


class RemoteProtocolError(ProtocolError):
    code = "remote_protocol"


class NetworkError(GliaError):
    code = "network"
    exit_code = 9
    retry = "elsewhere"


class PeerUnreachable(NetworkError):
    code = "peer_unreachable"


class PeerLost(NetworkError):
    code = "peer_lost"


class PeerRefused(NetworkError):
    code = "peer_refused"


class NotPermitted(GliaError):
    code = "not_permitted"
    exit_code = 10


class EngineError(GliaError):
    code = "engine"
    exit_code = 8


class EngineDied(EngineError):
    code = "engine_died"
    retry = "later"


class EngineFailed(EngineError):
    code = "engine_failed"


class Cancelled(EngineError):
    code = "cancelled"


class ModelError(GliaError):
    code = "model"
    exit_code = 2


class BadModelFile(ModelError):
    code = "bad_model_file"


class BadCalibration(ModelError):
    code = "bad_calibration"


class ModelRefused(ModelError):
    code = "model_refused"


class UnknownModel(ModelError):
    code = "unknown_model"


class UserError(GliaError):
    code = "user"
    exit_code = 2


class _FileError(UserError):
    """A mistake in a file the user wrote: names the file, the line and the key.

    Attributes:
        file, line, key: where; each may be unknown.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        named = f"{key}: {message}" if key else message
        super().__init__(f"{where}: {named}" if where else named, hint=hint)
        self.file, self.line, self.key = file, line, key


class ConfigError(_FileError):
    code = "config"


class ManifestError(_FileError):
    code = "manifest"


class PromptError(UserError):
    code = "prompt"


class NotRunning(UserError):
    code = "not_running"


class AlreadyRunning(UserError):
    code = "already_running"


class UnknownConversation(UserError):
    code = "unknown_conversation"


class ConversationBusy(UserError):
    code = "conversation_busy"
    retry = "later"


class ConversationMoved(UserError):
    code = "conversation_moved"


class BadRequest(UserError):
    code = "bad_request"


class BadField(BadRequest):
    """A field of an HTTP request that is missing, malformed or not supported.

    Attributes:
        field: its path, as `messages[0].content`; None where it is the whole body.
        reason: OpenAI's word for what is wrong with it.
    """

    code = "bad_field"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        reason: str = "invalid_value",
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.field, self.reason = field, reason


def _by_code() -> dict[str, type[GliaError]]:
    found: dict[str, type[GliaError]] = {}
    queue: list[type[GliaError]] = [GliaError]
    while queue:
        cls = queue.pop()
        if not cls.__name__.startswith("_"):
            found[cls.code] = cls
        queue.extend(cls.__subclasses__())
    return found


_BY_CODE = _by_code()


def error_from_code(code: str, message: str, hint: str | None) -> GliaError:
    """The error that travelled as (code, message, hint); an unknown code gives GliaError."""
    return _BY_CODE.get(code, GliaError)(message, hint=hint)
