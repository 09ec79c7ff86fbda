"""The engine: requests in, tokens and sealed windows out, one step at a time.

Single-threaded and free of I/O but for its two ports: the computing model and the memory
below L0. Whoever owns it calls `submit` and `cancel`, and `step` while it is not idle.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from functools import partial

import torch

from glia.engine.admission import Admission
from glia.engine.auditing import Auditor
from glia.engine.computation import Computation, Computed
from glia.engine.endings import Endings
from glia.engine.finding import Checks, Finding
from glia.engine.intake import take_in
from glia.engine.limits import Limits
from glia.engine.memory import TierMemory
from glia.engine.outcome import Broken, Emitted, Finished, Outcome, Prefilled
from glia.engine.replay import Replay
from glia.engine.rerun import Rerun, Rerunner, Unit
from glia.engine.residency import L0Stats, Residency
from glia.engine.scheduler import Scheduler
from glia.engine.sealing import Sealer
from glia.engine.sequence import Request, Sequence, State
from glia.engine.stops import Decode
from glia.errors import (
    CapacityError,
    EngineFailed,
    GliaError,
    NotFound,
    NotRunning,
    ProtocolError,
    StoreError,
)
from glia.graph.ids import WindowId
from glia.graph.profile import Profile
from glia.kv.compute import ComputeModel

_log = logging.getLogger("glia.engine")

_Work = Callable[[Sequence], list[Outcome]]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Sizes of one engine.

    Attributes:
        num_slots: windows that L0 holds.
        slot_bytes: what one of them takes there.
        max_running: most sequences between admission and their end.
        prefill_tokens: most prompt tokens computed in one step.
    """

    num_slots: int
    slot_bytes: int
    max_running: int = 4
    prefill_tokens: int = 512


class Engine:
    """Sequences over one model.

    Args:
        examiner: looks at what peers sent, before it is used.
        eos_tokens: the model's own end tokens.
        decode: token ids to text, for stop strings.
    """

    def __init__(
        self,
        model: ComputeModel,
        memory: TierMemory,
        profile: Profile,
        settings: EngineSettings,
        *,
        examiner: Checks,
        eos_tokens: Iterable[int] = (),
        decode: Decode,
    ) -> None:
        self._model = model
        self._memory = memory
        self._size = profile.block_size
        piece = max(1, settings.prefill_tokens // self._size) * self._size
        self._num_requests = 0
        self._endings = Endings(eos_tokens, decode)
        self._residency = Residency(settings.num_slots, settings.slot_bytes)
        self._scheduler = Scheduler(settings.num_slots, self._size, settings.max_running)
        self._admission = Admission(memory, model, self._residency, profile, examiner)
        self._auditor = Auditor(memory, profile, examiner)
        self._examiner = examiner
        self._rerunner = Rerunner(memory, model, self._residency, profile)
        num_cells = len(memory.staging) // profile.window_payload_bytes
        self._sealer = Sealer(memory, self._residency, profile, num_cells)
        self._computation = Computation(model, self._sealer, profile, piece)

    # -- what the owner calls -------------------------------------------------------------

    def submit(self, request: Request) -> Sequence:
        """Queue a request.

        Raises: PromptError (empty, token out of range, too long), PoolExhausted (larger
            than L0).
        """
        sequence = take_in(request, self._num_requests + 1, self._model, self._size)
        self._num_requests += 1
        self._scheduler.add(sequence)
        self._register(sequence)
        return sequence

    def fork(self, sequence: Sequence) -> Sequence:
        """Go on from here twice: sealed slots by reference, the tail copied on first write.

        Raises: PoolExhausted where L0 has no room for it beside what runs.
        """
        if sequence.state is State.FINISHED or sequence in self._endings:
            raise ValueError("only a sequence that runs can be forked")
        self._sealer.drain(sequence)
        self._num_requests += 1
        twin = sequence.fork(self._num_requests, self._size)
        self._scheduler.start_now(twin)
        self._residency.share_slots(twin.table)
        self._register(twin)
        return twin

    def cancel(self, sequence: Sequence) -> None:
        """End it at the next step, with what it has."""
        if sequence.state is not State.FINISHED:
            self._endings.cancel(sequence)

    def meet(self, sequence: Sequence, position: int) -> None:
        """Let it take what peers sent from this position on, once its prefill stands there."""
        sequence.meets_at = -(-position // self._size) * self._size

    def audit(
        self, chain: Several[WindowId], tokens: Several[int], *, is_canonical: bool
    ) -> Finding:
        """Compute a window again, between two steps.

        Args:
            chain: from genesis to this one. tokens: its own.
        Raises: NotFound where a window of the chain cannot be had; PromptError.
        """
        return self._auditor.audit(chain, tokens, is_canonical=is_canonical)

    def rerun(self, chain: Several[WindowId], units: Several[Unit]) -> list[Rerun]:
        """Run windows of a log again, between two steps; as Rerunner.rerun."""
        return self._rerunner.rerun(chain, units)

    @property
    def is_calibrated(self) -> bool:
        """Whether it was measured for this model how far off honest windows are."""
        return self._examiner.is_calibrated

    def take_limits(self, limits: Limits | None) -> None:
        """Hold what peers sent against these from now on; None: nobody measured them."""
        self._examiner.take_limits(limits)

    def evict_l0(self) -> tuple[int, int]:
        """Drop every slot that no sequence uses. Returns: (bytes, windows)."""
        return self._residency.evict_all()

    def forget_l0(self) -> tuple[int, int]:
        """Drop what no tier below has, and zero all that no sequence uses: slots, buffers, staging.

        Nobody could be given such a window (it is in no match), whoever forgot or evicted it.
        A window that a sequence uses stays. Returns: (bytes, windows) dropped.
        """
        unused = self._residency.unused
        known = self._memory.known(unused)
        dropped = self._residency.drop([name for name in unused if name not in known])
        self._model.clear(self._residency.free_slots)
        self._model.wipe()
        self._computation.wipe()
        self._sealer.wipe()
        return dropped

    @property
    def idle(self) -> bool:
        """Whether `step` would have nothing to do."""
        return not (self._scheduler.running or self._scheduler.waiting)

    @property
    def num_running(self) -> int:
        """Sequences between admission and their end."""
        return len(self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Sequences in the queue."""
        return len(self._scheduler.waiting)

    def l0(self) -> L0Stats:
        """Sizes and counters of L0."""
        return self._residency.stats()

    def check(self) -> None:
        """The invariants, for tests and idle time."""
        self._scheduler.check()
        self._residency.check([s.table for s in self._scheduler.running])

    def step(self) -> list[Outcome]:
        """One turn: names come in, answers end, all that decode get a token, one prefills.

        The piece of prefill comes last, so that a first token is told at once.

        Raises: NotRunning, ProtocolError where the memory below is gone. What fails in one
            sequence's turn ends that sequence; what is refused while names come in costs it
            its names.
        """
        self._sealer.collect()
        outcomes: list[Outcome] = []
        for sequence in self._endings.due:
            outcomes += self._guarded(self._finish, sequence)
        outcomes += self._decode(self._scheduler.to_decode())
        prefilling = self._scheduler.to_prefill()
        if prefilling is not None:
            outcomes += self._guarded(self._prefill, prefilling)
        return outcomes

    # -- one sequence's turn --------------------------------------------------------------

    def _prefill(self, sequence: Sequence) -> list[Outcome]:
        """Find and restore what is known of the prompt, then compute the rest by pieces."""
        if sequence.state is State.WAITING:
            self._admit(sequence)
        elif sequence.coming:
            self._admission.go_on(sequence)
        if sequence.coming:
            return []
        if sequence.meets_at is not None and sequence.num_computed >= sequence.meets_at:
            self._sealer.drain(sequence)
            self._admission.meet(sequence)
        start = sequence.num_computed
        logits = self._computation.run(sequence, self._computation.piece(sequence), "prefill")
        end = sequence.num_computed
        sequence.usage.computed += max(0, min(end, sequence.prompt_length) - start)
        outcomes: list[Outcome] = [Prefilled(sequence, end, len(sequence.tokens))]
        if not sequence.num_pending:
            sequence.state = State.DECODING
            outcomes += self._choose(sequence, logits)
        return outcomes

    def _admit(self, sequence: Sequence) -> None:
        started = time.perf_counter()
        sequence.spend("queue", started - sequence.marks["submit"])
        sequence.state = State.PREFILLING
        if sequence.num_computed:
            self._admission.admit_fork(sequence)
            return
        self._sealer.drain()  # what others are having named may be this one's prefix
        self._admission.admit(sequence)

    def _decode(self, sequences: Several[Sequence]) -> list[Outcome]:
        """The next token of each from its last one: computed together, each kept by itself.

        Where computing together fails, each is computed alone, so that one exception fails
        one sequence.
        """
        found: list[Computed | None] = [None] * len(sequences)
        if len(sequences) > 1:
            try:
                found = [*self._computation.compute_one_each(sequences)]
            except Exception:
                _log.error("decoding %d requests together failed: each alone", len(sequences))
        outcomes: list[Outcome] = []
        for sequence, computed in zip(sequences, found, strict=True):
            outcomes += self._guarded(partial(self._decode_one, computed), sequence)
        return outcomes

    def _decode_one(self, computed: Computed | None, sequence: Sequence) -> list[Outcome]:
        self._sealer.count_step()
        if computed is None:
            logits = self._computation.run(sequence, 1, "decode")
        else:
            logits = self._computation.keep(sequence, computed, "decode")
        return self._choose(sequence, logits)

    def _choose(self, sequence: Sequence, logits: torch.Tensor) -> list[Outcome]:
        replay = sequence.replay
        if replay is not None and replay.is_over:  # what was asked last has no answer
            self._endings.look(sequence)
            return []
        token = sequence.sampler.choose(logits)
        sequence.marks.setdefault("first_token", time.perf_counter())
        if replay is None:
            sequence.tokens.append(token)
        else:
            self._go_on(sequence, replay)
        self._endings.look(sequence)
        return [Emitted(sequence, token)]

    def _go_on(self, sequence: Sequence, replay: Replay) -> None:
        """Whatever would have been chosen, what was said comes next."""
        if replay.go_on(sequence.tokens):
            sequence.sampler = replay.sampler()
        if sequence.num_pending > 1:
            sequence.state = State.PREFILLING

    def _finish(self, sequence: Sequence) -> list[Outcome]:
        """Name the last windows, wait until all are durable, give the slots back."""
        reason = self._endings.reason(sequence)
        if reason != "cancelled" and self._computation.last_fills_window(sequence):
            self._computation.run(sequence, 1, "last_window")
        started = time.perf_counter()
        self._sealer.drain(sequence)
        tip = sequence.chain[-1] if sequence.chain else None
        try:
            if sequence.chain:
                self._memory.flush(sequence.chain)
        except (CapacityError, NotFound, StoreError) as error:
            sequence.warning = f"windows are not on disk: {_why_not(error)}"
            tip = None
        sequence.spend("flush", time.perf_counter() - started)
        self._leave(sequence)
        return [Finished(sequence, sequence.answered(reason, tip))]

    # -- coming and going -----------------------------------------------------------------

    def _register(self, sequence: Sequence) -> None:
        sequence.marks["submit"] = time.perf_counter()
        self._endings.watch(sequence)

    def _leave(self, sequence: Sequence) -> None:
        """Its slots are given back; named ones stay resident until they are evicted."""
        self._residency.release(sequence.table)
        if sequence.tail is not None:
            sequence.tail.wipe()
        sequence.table, sequence.tail = [], None
        sequence.state = State.FINISHED
        self._scheduler.remove(sequence)
        self._endings.drop(sequence)

    def _guarded(self, work: _Work, sequence: Sequence) -> list[Outcome]:
        """One exception fails one sequence; without the memory below nothing can go on."""
        try:
            return work(sequence)
        except (NotRunning, ProtocolError):
            raise
        except Exception as error:
            # Neither messages nor values are logged: they may hold tokens.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("request %d failed: %s\n%s", sequence.number, type(error).__name__, where)
            self._sealer.drain(sequence)
            unsealed = sequence.table[len(sequence.chain) :]
            if unsealed:
                self._model.clear(unsealed)
            self._leave(sequence)
            if not isinstance(error, GliaError):
                error = EngineFailed(f"a step of the engine failed ({type(error).__name__})")
            return [Broken(sequence, error)]


def _why_not(error: GliaError) -> str:
    """Why windows could not be kept, and what to change."""
    if isinstance(error, NotFound):
        return "some were dropped before all were: raise [l1] size and [l2] size in glia.toml"
    return f"{error.message}: {error.hint}" if error.hint else error.message
