"""gliad's side of an attached engine: its calls to the engine, and what the engine says.

Lives as long as the engine's connection; when that ends, every call ends with EngineDied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from daemon.binding import bind
from daemon.wire import Wire
from glia.errors import (
    EngineDied,
    GliaError,
    QuotaExceeded,
    RemoteProtocolError,
    error_from_code,
)
from glia.graph.domain import Domain
from glia.graph.ids import WindowId
from glia.graph.tokens import unpack_tokens
from glia.local.messages import (
    Attach,
    AuditedWindow,
    AuditWindow,
    Call,
    CancelRun,
    Done,
    Emitted,
    EngineStats,
    EvictL0,
    EvictReply,
    Failed,
    ForgetL0,
    Generate,
    Generated,
    Meet,
    Progress,
    RanAgain,
    Ready,
    Replay,
    Reply,
    RerunWindows,
    Run,
    TakeLimits,
)
from glia.local.values import DomainValue, RerunValue, SamplingValue, TierValue, UnitValue

Deliver = Callable[[Progress | Emitted], None]
FromEngine = (
    Progress
    | Emitted
    | Ready
    | EngineStats
    | Generated
    | EvictReply
    | AuditedWindow
    | RanAgain
    | Done
    | Failed
)


@dataclass
class _Outgoing:
    deliver: Deliver
    done: trio.Event = field(default_factory=trio.Event)
    reply: Reply | None = None


class EngineLink:
    """Calls an engine down the connection that it opened.

    Attributes:
        attach, binding: what it attached with.
        pid: its process, as the kernel says.
        ready: set once it can run.
        memory_bytes: what it had of its own when it got ready; 0 if it did not say.
        tokens_per_s: how fast it then computed a short prompt; 0 if it did not say.
    """

    def __init__(self, wire: Wire, attach: Attach, pid: int) -> None:
        self.attach = attach
        self.binding = bind(attach)
        self.pid = pid
        self.ready = trio.Event()
        self.closed = trio.Event()
        self.l0 = TierValue()
        self.memory_bytes = 0
        self.tokens_per_s = 0.0
        self.num_running = 0
        self.num_waiting = 0
        self._heard_s = trio.current_time()
        self._died: GliaError = EngineDied(
            f"the engine of {attach.serves or 'a guest'} ended while it was asked",
            hint="ask again: gliad starts it anew",
        )
        self._wire = wire
        self._next_id = 1
        self._calls: dict[int, _Outgoing] = {}
        self._abandoned: set[int] = set()
        self._told: set[int] = set()  # calls whose replies say nothing

    def start_run(self, call: Generate, deliver: Deliver, domain: Domain | None = None) -> int:
        """Hand a request over. Returns its id for `finish` and `cancel`.

        Args: domain: of the group that may read its windows.
        """
        self._next_id += 1
        run = Run(
            id=self._next_id,
            tokens=call.tokens,
            max_tokens=call.max_tokens,
            sampling=call.sampling,
            stop_tokens=call.stop_tokens,
            stop=call.stop,
            ignore_eos=call.ignore_eos,
            exact=bool(call.exact),
            domain=DomainValue.of(domain),
        )
        return self._start(run, deliver)

    def start_replay(self, call: Replay, deliver: Deliver) -> int:
        """Have a log run again. Returns its id for `finish` and `cancel`."""
        self._next_id += 1
        run = Run(
            id=self._next_id,
            tokens=list(unpack_tokens(call.tokens)),
            max_tokens=1,
            sampling=SamplingValue(),
            stop_tokens=[],
            stop=[],
            ignore_eos=True,
            chosen=call.chosen,
        )
        return self._start(run, deliver)

    async def finish_run(self, run_id: int) -> Generated:
        """The answer. Giving this up cancels the run.

        Raises: EngineDied, or what the engine failed with.
        """
        try:
            reply = await self._finish(run_id)
        finally:
            if run_id in self._abandoned:
                self.cancel(run_id)
        if not isinstance(reply, Generated):
            raise RemoteProtocolError(f"an engine answered a Run with a {type(reply).__name__}")
        return reply

    def cancel(self, run_id: int) -> None:
        """Ask the engine to end a run, if it reads; the run then answers."""
        if not self.closed.is_set():
            self._next_id += 1
            with suppress(QuotaExceeded):
                self._wire.post(CancelRun(self._next_id, run_id))
                self._abandoned.add(self._next_id)

    def meet(self, run_id: int, position: int) -> None:
        """Tell the engine that what a run wants is there from a position on, if it reads."""
        if run_id in self._calls and not self.closed.is_set():
            self._next_id += 1
            with suppress(QuotaExceeded):
                self._wire.post(Meet(self._next_id, run_id, position))
                self._told.add(self._next_id)

    async def audit(
        self, chain: Sequence[WindowId], tokens: Sequence[int], *, is_canonical: bool
    ) -> AuditedWindow:
        """Have the engine compute a window again.

        Args:
            chain: from genesis to the window. tokens: its own.
        Raises: EngineDied, QuotaExceeded where it is behind, NotFound, PromptError.
        """
        self._next_id += 1
        call = AuditWindow(self._next_id, list(chain), list(tokens), is_canonical)
        reply = await self._finish(self._start(call, lambda _: None))
        if not isinstance(reply, AuditedWindow):
            raise RemoteProtocolError(
                f"an engine answered an AuditWindow with a {type(reply).__name__}"
            )
        return reply

    async def rerun(
        self, chain: Sequence[WindowId], units: Sequence[UnitValue]
    ) -> Sequence[RerunValue]:
        """Have the engine run windows of a log again. Args: as RerunWindows.

        Raises: EngineDied, QuotaExceeded where it is behind, NotFound, PromptError, PoolExhausted.
        """
        self._next_id += 1
        call = RerunWindows(self._next_id, list(chain), list(units))
        reply = await self._finish(self._start(call, lambda _: None))
        if not isinstance(reply, RanAgain) or len(reply.found) != len(units):
            raise RemoteProtocolError("an engine answered something else than was run again")
        return reply.found

    async def take_limits(self) -> None:
        """Have the engine read anew how far off honest windows are.

        Raises: EngineDied, QuotaExceeded where it is behind.
        """
        self._next_id += 1
        await self._finish(self._start(TakeLimits(self._next_id), lambda _: None))

    async def evict_l0(self) -> EvictReply:
        """Have the engine drop what it does not use. Raises: EngineDied."""
        self._next_id += 1
        return await self._evicted(EvictL0(self._next_id))

    async def forget_l0(self) -> None:
        """Have the engine drop windows that are known no more, and zero what it does not use.

        Runs that were given up may still use some: it is asked again until those have ended.
        Raises: EngineDied, QuotaExceeded where it is behind.
        """
        given_up, is_last = frozenset(self._abandoned), False
        while not is_last:
            is_last = not given_up & self._abandoned
            self._next_id += 1
            await self._evicted(ForgetL0(self._next_id))

    @property
    def has_given_up(self) -> bool:
        """Whether it may still be at something that was given up, and seal for it."""
        return bool(self._abandoned)

    def on_message(self, message: FromEngine) -> None:
        """Take in what the engine said. Raises: RemoteProtocolError."""
        if isinstance(message, Ready):
            self.l0 = TierValue(cap_bytes=message.l0_cap_bytes)
            self.memory_bytes = message.memory_bytes
            self.tokens_per_s = message.tokens_per_s
            self.ready.set()
        elif isinstance(message, EngineStats):
            self.l0 = message.l0
            self.num_running, self.num_waiting = message.num_running, message.num_waiting
        elif isinstance(message, Progress | Emitted):
            outgoing = self._calls.get(message.id)
            if outgoing is not None:
                outgoing.deliver(message)
        else:
            self._on_reply(message)

    @property
    def silent_s(self) -> float:
        """How long it has been asked something and said nothing at all."""
        return trio.current_time() - self._heard_s if self._calls else 0.0

    def heard(self) -> None:
        """It said something, whatever it was."""
        self._heard_s = trio.current_time()

    def close(self, why: GliaError | None = None) -> None:
        """The connection ended, or is to be taken for ended. Idempotent."""
        self._died = why or self._died
        self.closed.set()
        for outgoing in self._calls.values():
            outgoing.done.set()

    def _on_reply(self, message: Reply) -> None:
        if message.id in self._calls:
            self._calls[message.id].reply = message
            self._calls[message.id].done.set()
        elif message.id not in self._abandoned | self._told:
            raise RemoteProtocolError(f"an engine answered a call that was not made: {message.id}")
        self._abandoned.discard(message.id)
        self._told.discard(message.id)

    def _start(self, call: Call, deliver: Deliver) -> int:
        if self.closed.is_set():
            raise self._died
        try:
            self._wire.post(call)
        except QuotaExceeded as error:
            raise QuotaExceeded(
                f"the engine of {self.attach.serves} is behind with what it was asked",
                hint="ask again later",
            ) from error
        if not self._calls:
            self.heard()  # it had nothing to say until now
        self._calls[call.id] = _Outgoing(deliver)
        return call.id

    async def _evicted(self, call: EvictL0 | ForgetL0) -> EvictReply:
        reply = await self._finish(self._start(call, lambda _: None))
        if not isinstance(reply, EvictReply):
            raise RemoteProtocolError(
                f"an engine answered {type(call).__name__} with a {type(reply).__name__}"
            )
        return reply

    async def _finish(self, call_id: int) -> Reply:
        outgoing = self._calls[call_id]
        try:
            await outgoing.done.wait()
        finally:
            del self._calls[call_id]
            if outgoing.reply is None:  # it will come, and be nobody's
                self._abandoned.add(call_id)
        if outgoing.reply is None:
            raise self._died
        if isinstance(outgoing.reply, Failed):
            failed = outgoing.reply
            raise error_from_code(failed.code, failed.message, failed.hint)
        return outgoing.reply
