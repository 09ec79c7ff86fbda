"""The memory calls: what an engine (ours or another) asks of L1 and L2, and being served."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from glia.client.caller import Caller
from glia.graph.domain import Domain
from glia.graph.ids import ModelId, WindowId
from glia.graph.profile import Profile
from glia.local import messages as m
from glia.local import values
from glia.local.connection import Connection

FromGliad = (
    m.Run
    | m.CancelRun
    | m.Meet
    | m.AuditWindow
    | m.RerunWindows
    | m.TakeLimits
    | m.EvictL0
    | m.ForgetL0
)
_KNOWN_AT_ONCE = 16384  # of 34 bytes, in one frame
_FOUND_AT_ONCE = 4096


class MemoryCalls(Caller):
    """Windows in and out of L1; and for one that serves a model, what gliad asks of it."""

    def __init__(self, connection: Connection, kind: str, name: str) -> None:
        super().__init__(connection, kind, name)
        self._arena: mmap.mmap | None = None
        self._staging: mmap.mmap | None = None

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

    def match(
        self,
        tokens: Sequence[int],
        *,
        exact: bool = True,
        domain: Domain | None = None,
        coming: bool = False,
    ) -> list[WindowId]:
        """The longest known chain of whole windows for `tokens`.

        Args:
            exact: of the own numerics class only; else of any, the own one on a tie.
            domain: of a group, from where on its windows are looked for.
            coming: also windows that peers are sending; `Leased.late` says more.
        Raises: NotFound where that is none of the node's.
        """
        value = values.DomainValue.of(domain)
        reply = self._call(m.Match(self._id(), list(tokens), exact, value, coming), m.Matched)
        return [WindowId(name) for name in reply.windows]

    def known(self, windows: Sequence[WindowId]) -> list[WindowId]:
        """Those of these windows that are whole in L1 or L2."""
        found: list[bytes] = []
        for start in range(0, len(windows), _KNOWN_AT_ONCE):
            part: list[bytes] = list(windows[start : start + _KNOWN_AT_ONCE])
            found += self._call(m.Known(self._id(), part), m.Matched).windows
        return [WindowId(name) for name in found]

    def adopt(self, prev: WindowId | None, tokens: Sequence[int]) -> list[WindowId]:
        """What peers sent ahead becomes windows of L1. Returns: those that follow `prev`.

        Raises: NotFound where `prev` is not known.
        """
        reply = self._call(m.Adopt(self._id(), prev, list(tokens)), m.Matched)
        return [WindowId(name) for name in reply.windows]

    def lease_begin(self, windows: Sequence[WindowId]) -> int:
        """Ask for windows to be pinned in L1. Returns a ticket for `lease_end`."""
        return self._connection.call(m.Lease(self._id(), list(windows)))

    def lease_end(self, ticket: int) -> m.Leased:
        """The lease asked for; shorter than asked where a window could not be had."""
        return self._answer(ticket, m.Leased)

    def examined(self, found: Sequence[values.FindingValue]) -> list[WindowId]:
        """Tell what came of looking at windows of leases. Returns: those to compute again."""
        audit: list[bytes] = []
        for start in range(0, len(found), _FOUND_AT_ONCE):
            part = list(found[start : start + _FOUND_AT_ONCE])
            audit += self._call(m.Examined(self._id(), part), m.ExaminedReply).audit
        return [WindowId(name) for name in audit]

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
        domain: Domain | None = None,
    ) -> int:
        """Ask for names of full windows that stand in staging. Returns a ticket for `seal_end`."""
        value = values.DomainValue.of(domain)
        call = m.Seal(self._id(), prev, position_start, list(tokens), offset, num_steps, value)
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

    def send_reply(
        self,
        reply: m.Generated | m.EvictReply | m.AuditedWindow | m.RanAgain | m.Done | m.Failed,
    ) -> None:
        """Answer a call of gliad."""
        self._connection.send(reply)
