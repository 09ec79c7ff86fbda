"""The public client of gliad, synchronous, for one thread. The CLI and the engine have no other.

    with Client.connect(data_dir) as client:
        for event in client.generate("smollm2", tokens, max_tokens=16):
            ...  # Progress and Emitted (tokens), at last Generated (usage, tip), of local.messages

Tokens are the model's own (glia.model.tokenizer). `*_begin` sends a call and gives a ticket,
`*_end` waits for its answer: several may be under way. Every error is one of glia.errors,
with a hint of what to type next.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from glia.errors import NotRunning, RemoteProtocolError
from glia.graph.ids import ModelId, WindowId
from glia.graph.profile import Profile
from glia.graph.tokens import TOKEN_BYTES, unpack_tokens
from glia.local import messages as m
from glia.local import values
from glia.local.address import socket_path
from glia.local.connection import Connection, dial

FromGliad = m.Run | m.CancelRun | m.EvictL0 | m.ForgetL0
OnProgress = Callable[[str, int, int], None]  # (what, done, total)
_HANDSHAKE_S = 10.0
_CANCEL_POLL_S = 0.1
_KNOWN_AT_ONCE = 16384  # of 34 bytes, in one frame

R = TypeVar("R", bound=m.Reply)


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation read whole."""

    about: values.ConversationValue
    messages: tuple[values.MessageValue, ...]
    tokens: tuple[int, ...]


class Client:
    """A connection to a running gliad.

    Attributes:
        welcome: what gliad said of itself.
    """

    def __init__(self, connection: Connection, kind: str, name: str) -> None:
        self._connection = connection
        hello = m.Hello(connection.next_id(), m.PROTOCOL_VERSION, kind, name)
        self.welcome = self._answer(connection.call(hello), m.Welcome, _HANDSHAKE_S)
        self._arena_fd = connection.take_descriptor()
        self._arena: mmap.mmap | None = None
        self._staging: mmap.mmap | None = None

    @classmethod
    def connect(
        cls,
        target: str | os.PathLike[str],
        *,
        kind: str = "client",
        name: str = "",
        timeout_s: float = 10.0,
    ) -> Self:
        """Connect to the gliad of a data dir (or to a socket).

        Args:
            kind: client or engine.
            timeout_s: how long to wait for a gliad that is still starting.
        Raises: NotRunning, BadRequest (path too long), RemoteProtocolError (other version).
        """
        path = socket_path(target)
        connection = Connection(dial(path, timeout_s), path)
        try:
            return cls(connection, kind, name)
        except TimeoutError as error:
            connection.close()
            raise NotRunning(
                "gliad does not answer", hint="gliad stop, then gliad start"
            ) from error
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; leases and staging end with it. Idempotent.

        Arrays over `arena` and `staging` stay valid memory while they live.
        """
        self._connection.close()
        if self._arena_fd >= 0:
            os.close(self._arena_fd)
            self._arena_fd = -1

    def fileno(self) -> int:
        """For poll and select."""
        return self._connection.fileno()

    # -- what people ask ------------------------------------------------------------------

    def status(self) -> m.StatusReply:
        """What `gliad status` shows."""
        return self._call(m.Status(self._id()), m.StatusReply)

    def models(self) -> list[values.ModelValue]:
        """All models this node knows by name."""
        return self._call(m.Models(self._id()), m.ModelsReply).models

    def add_model(
        self,
        name: str,
        manifest: str,
        *,
        replace: bool = False,
        on_progress: OnProgress | None = None,
    ) -> values.ModelValue:
        """Register a manifest (TOML text) under a name, after loading the model once.

        Raises: ManifestError, BadRequest (name taken), ModelRefused, BadModelFile.
        """
        call = m.AddModel(self._id(), name, manifest, replace)
        (model,) = self._call(call, m.ModelsReply, on_progress).models
        return model

    def generate(
        self,
        model: str,
        tokens: Sequence[int],
        *,
        max_tokens: int,
        dtype: str | None = None,
        sampling: values.SamplingValue | None = None,
        stop_tokens: Sequence[int] = (),
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        turn: values.TurnValue | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Iterator[m.Progress | m.Emitted | m.Generated]:
        """Continue a prompt: Progress and Emitted events, at last the Generated reply.

        The call is sent with the first `next`. Closing the iterator cancels.

        Args:
            turn: the conversation that this belongs to; None records an anonymous one.
            is_cancelled: asked several times a second. Once it says so the request is
                cancelled, and the reply has what there was of the answer.
        Raises: UnknownModel, PromptError, PoolExhausted, EngineDied, EngineFailed, Cancelled,
            UnknownConversation, ConversationBusy, BadRequest (`keep` is not the log's).
        """
        call = m.Generate(
            id=self._id(),
            model=model,
            dtype=dtype,
            tokens=list(tokens),
            max_tokens=max_tokens,
            sampling=sampling or values.SamplingValue(),
            stop_tokens=list(stop_tokens),
            stop=list(stop),
            ignore_eos=ignore_eos,
            turn=turn,
        )
        return self._generation(call, is_cancelled or (lambda: False))

    def conversations(self) -> list[values.ConversationValue]:
        """All conversations, last used first."""
        found: list[values.ConversationValue] = []
        while True:
            part = self._call(m.Conversations(self._id(), len(found)), m.ConversationsReply)
            found += part.conversations
            if len(found) >= part.total or not part.conversations:
                return found

    def conversation(self, name: str) -> Conversation:
        """One conversation with all its messages and tokens. Raises: UnknownConversation."""
        messages: list[values.MessageValue] = []
        tokens = b""
        while True:
            call = m.ReadConversation(self._id(), name, len(messages), len(tokens) // TOKEN_BYTES)
            part = self._call(call, m.ConversationReply)
            messages += part.messages
            tokens += part.tokens
            about = part.conversation
            whole = (
                len(messages) >= about.num_messages
                and len(tokens) >= TOKEN_BYTES * about.num_tokens
            )
            if whole or not (part.messages or part.tokens):
                return Conversation(about, tuple(messages), unpack_tokens(tokens))

    def fork(self, name: str, new: str, num_tokens: int | None = None) -> values.ConversationValue:
        """Make `new` begin with the first `num_tokens` tokens of `name` (None: all).

        Raises: UnknownConversation, BadRequest (name taken or bad, more tokens than there are).
        """
        call = m.Fork(self._id(), name, new, num_tokens)
        return self._call(call, m.ConversationReply).conversation

    def forget(self, name: str, on_progress: OnProgress | None = None) -> m.ForgetReply:
        """Remove a conversation and every byte that nothing else uses.

        Raises: UnknownConversation, ConversationBusy.
        """
        return self._call(m.Forget(self._id(), name), m.ForgetReply, on_progress)

    def gc(self, *, unreferenced: bool = False, on_progress: OnProgress | None = None) -> m.GcReply:
        """Forget what has expired, drop what cannot be used, compact."""
        return self._call(m.Gc(self._id(), unreferenced), m.GcReply, on_progress)

    def runs(self) -> list[values.RunValue]:
        """Requests under way, and the last ones that ended; newest first."""
        return self._call(m.Runs(self._id()), m.RunsReply).runs

    def explain(
        self, model: str, tokens: Sequence[int], *, dtype: str | None = None
    ) -> m.ExplainReply:
        """Why a prompt is cached as far as it is, and no further. Raises: UnknownModel."""
        return self._call(m.Explain(self._id(), model, dtype, list(tokens)), m.ExplainReply)

    def chain(self, tip: WindowId | bytes) -> list[values.WindowValue]:
        """The windows from genesis to `tip`. Raises: NotFound."""
        windows: list[values.WindowValue] = []
        while True:
            part = self._call(m.Chain(self._id(), bytes(tip), len(windows)), m.ChainReply)
            windows += part.windows
            if len(windows) >= part.total:
                return windows
            if not part.windows:
                raise RemoteProtocolError("the chain ends before its tip")

    def check(self, on_progress: OnProgress | None = None) -> m.CheckReply:
        """Re-verify everything stored."""
        return self._call(m.Check(self._id()), m.CheckReply, on_progress)

    def evict(self, tier: str) -> m.EvictReply:
        """Give back what tier l0 or l1 holds; its bytes go a tier down first."""
        return self._call(m.Evict(self._id(), tier), m.EvictReply)

    def shutdown(self) -> None:
        """Stop gliad; returns when everything acknowledged is on disk."""
        self._call(m.Shutdown(self._id()), m.Done)

    # -- memory: what an engine does ----------------------------------------------------------

    @property
    def arena(self) -> mmap.mmap:
        """L1. A private mapping: writing to it is possible and reaches nobody else."""
        if self._arena is None:
            size = self.welcome.arena_bytes
            self._arena = mmap.mmap(
                self._arena_fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE
            )
        return self._arena

    @property
    def staging(self) -> mmap.mmap:
        """This connection's staging area, shared with gliad; made by `make_staging`."""
        if self._staging is None:
            raise RuntimeError("make_staging comes first")
        return self._staging

    def attach(
        self,
        model_id: ModelId,
        profile: Profile,
        numerics_class: str,
        *,
        serves: str = "",
        dtype: str = "",
        context_tokens: int = 0,
        files_dir: str = "",
    ) -> int:
        """Bind this connection to a model and profile. Returns the id that `Ready` names."""
        shapes = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in profile.layers]
        value = values.ProfileValue(profile.block_size, profile.scheme, profile.mode, shapes)
        call = m.Attach(
            id=self._id(),
            model_id=model_id,
            profile=value,
            numerics_class=numerics_class,
            serves=serves,
            dtype=dtype,
            context_tokens=context_tokens,
            files_dir=files_dir,
        )
        self._call(call, m.Done)
        return call.id

    def make_staging(self, size_bytes: int) -> mmap.mmap:
        """Get a staging area (a new one replaces the old). Raises: QuotaExceeded."""
        self._call(m.Staging(self._id(), size_bytes), m.Done)
        fd = self._connection.take_descriptor()
        try:
            self._staging = mmap.mmap(fd, size_bytes)
        finally:
            os.close(fd)
        return self._staging

    def match(self, tokens: Sequence[int]) -> list[WindowId]:
        """The longest known chain of whole windows for `tokens`, own numerics class only."""
        reply = self._call(m.Match(self._id(), list(tokens)), m.Matched)
        return [WindowId(name) for name in reply.windows]

    def known(self, windows: Sequence[WindowId]) -> list[WindowId]:
        """Those of these windows that are whole in L1 or L2."""
        found: list[bytes] = []
        for start in range(0, len(windows), _KNOWN_AT_ONCE):
            part: list[bytes] = list(windows[start : start + _KNOWN_AT_ONCE])
            found += self._call(m.Known(self._id(), part), m.Matched).windows
        return [WindowId(name) for name in found]

    def lease_begin(self, windows: Sequence[WindowId]) -> int:
        """Ask for windows to be pinned in L1. Returns a ticket for `lease_end`."""
        return self._connection.call(m.Lease(self._id(), list(windows)))

    def lease_end(self, ticket: int) -> m.Leased:
        """The lease asked for; shorter than asked where a window could not be had."""
        return self._answer(ticket, m.Leased)

    def release(self, lease: int) -> None:
        """Give a lease back; not waited for."""
        self._connection.call_unanswered(m.Release(self._id(), lease))

    def seal_begin(
        self,
        prev: WindowId | None,
        position_start: int,
        tokens: Sequence[int],
        offset: int,
        num_steps: int = 0,
    ) -> int:
        """Ask for names of full windows that stand in staging. Returns a ticket for `seal_end`."""
        call = m.Seal(self._id(), prev, position_start, list(tokens), offset, num_steps)
        return self._connection.call(call)

    def seal_ready(self, ticket: int) -> bool:
        """Whether `seal_end` would not wait."""
        return self._connection.has_answer(ticket)

    def seal_end(self, ticket: int) -> m.Sealed:
        """The names. Raises: ArenaExhausted, BadRequest."""
        return self._answer(ticket, m.Sealed)

    def flush_begin(self, windows: Sequence[WindowId]) -> int:
        """Ask for windows to be durable. Returns a ticket for `flush_end`."""
        return self._connection.call(m.Flush(self._id(), list(windows)))

    def flush_end(self, ticket: int) -> None:
        """Returns when they are. Raises: StoreFull, StoreBroken."""
        self._answer(ticket, m.Done)

    def flush(self, windows: Sequence[WindowId]) -> None:
        """Returns when the windows are durable. Raises: StoreFull, StoreBroken."""
        self.flush_end(self.flush_begin(windows))

    # -- serving: what gliad asks of an engine --------------------------------------------------

    def poll(self, timeout_s: float | None) -> FromGliad | None:
        """The next call of gliad to this engine; None where none comes within `timeout_s`.

        Raises: NotRunning where gliad is gone (an engine then exits).
        """
        call = self._connection.take_pushed(timeout_s)
        return call if isinstance(call, FromGliad) else None

    def send_event(self, event: m.Progress | m.Emitted | m.Ready | m.EngineStats) -> None:
        """Tell gliad something about a call."""
        self._connection.send(event)

    def send_reply(self, reply: m.Generated | m.EvictReply | m.Done | m.Failed) -> None:
        """Answer a call of gliad."""
        self._connection.send(reply)

    # -- inside -------------------------------------------------------------------------------

    def _id(self) -> int:
        return self._connection.next_id()

    def _call(self, call: m.Call, reply: type[R], on_progress: OnProgress | None = None) -> R:
        return self._answer(self._connection.call(call), reply, on_progress=on_progress)

    def _answer(
        self,
        call_id: int,
        reply: type[R],
        timeout_s: float | None = None,
        *,
        on_progress: OnProgress | None = None,
    ) -> R:
        while True:
            message = self._connection.take(call_id, timeout_s)
            if isinstance(message, reply):
                return message
            if not isinstance(message, m.Progress):
                raise RemoteProtocolError(f"a {type(message).__name__} answers nothing here")
            if on_progress is not None:
                on_progress(message.what, message.done, message.total)

    def _generation(
        self, call: m.Generate, is_cancelled: Callable[[], bool]
    ) -> Iterator[m.Progress | m.Emitted | m.Generated]:
        self._connection.call(call)
        ended = cancelled = False
        try:
            while not ended:
                if not cancelled and is_cancelled():
                    cancelled = True
                    self._connection.call_unanswered(m.Cancel(self._id(), call.id))
                try:
                    message = self._take_generated(call.id, _CANCEL_POLL_S)
                except TimeoutError:
                    continue
                ended = isinstance(message, m.Generated)
                yield message
        except GeneratorExit:
            if not ended:
                self._connection.abandon(call.id)
                with contextlib.suppress(NotRunning):  # then it has ended already
                    self._connection.call_unanswered(m.Cancel(self._id(), call.id))
            raise

    def _take_generated(
        self, call_id: int, timeout_s: float
    ) -> m.Progress | m.Emitted | m.Generated:
        message = self._connection.take(call_id, timeout_s)
        if not isinstance(message, m.Progress | m.Emitted | m.Generated):
            raise RemoteProtocolError(f"a {type(message).__name__} answers nothing here")
        return message
