"""The engine process: one connection to gliad, one engine, one thread.

Blocks on the connection while idle; while sequences run, looks at it between steps.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import sys
import time
import traceback
from collections import deque
from collections.abc import Sequence as Several
from pathlib import Path

from glia.client import Client
from glia.client.memory import FromGliad
from glia.engine.boot import Booted, BootSettings, boot
from glia.engine.memory import Examined
from glia.engine.outcome import Emitted, Finished, Outcome, Prefilled
from glia.engine.remote import finding_value
from glia.engine.rerun import Unit
from glia.engine.sequence import Answer, Request, Sequence
from glia.errors import EngineFailed, GliaError, NotRunning
from glia.graph.answers import ChosenSpan
from glia.graph.ids import WindowId
from glia.graph.sampling import Sampling
from glia.local import messages as m
from glia.local import values

EXIT_NOT_LOADED = 2
_AUDIT_WAITS_S = 1.5  # of the 2 s in which it is to be begun (SECURITY 3.5)


def main(argv: Several[str]) -> int:
    """Load, attach, serve until gliad goes away.

    What keeps it from serving is one line of JSON on stdout: code, message, hint.
    Returns: the exit code.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    socket, settings = _parse(argv)
    try:
        with Client.connect(socket, kind="engine", name=settings.model) as client:
            try:
                booted = boot(client, settings)
            except NotRunning:
                raise
            except Exception as error:
                return _not_loaded(error)
            Worker(client, booted).serve()
    except NotRunning:
        return 0
    return 0


class Worker:
    """Carries calls to the engine and outcomes back."""

    def __init__(self, client: Client, booted: Booted) -> None:
        self._client = client
        self._engine = booted.engine
        self._attach_id = booted.attach_id
        self._limits = booted.limits
        self._runs: dict[int, Sequence] = {}
        self._ids: dict[Sequence, int] = {}
        self._audits: deque[m.AuditWindow | m.RerunWindows] = deque()
        self._audited_s = 0.0
        self._told = (0, 0)
        cap_bytes = booted.engine.l0().cap_bytes
        ready = m.Ready(
            booted.attach_id, cap_bytes, booted.warnings, _resident_bytes(), booted.tokens_per_s
        )
        client.send_event(ready)

    def serve(self) -> None:
        """For ever. Raises: NotRunning when gliad goes away."""
        while True:
            call = self._client.poll(None if self._engine.idle and not self._audits else 0.0)
            while call is not None:
                self._take(call)
                call = self._client.poll(0.0)
            if not self._engine.idle:
                for outcome in self._engine.step():
                    self._tell(outcome)
                if (self._engine.num_running, self._engine.num_waiting) != self._told:
                    self._send_stats()
            if self._audits and (self._engine.idle or self._audit_is_due):
                self._audit(self._audits.popleft())

    def _audit(self, call: m.AuditWindow | m.RerunWindows) -> None:
        """One, between two steps."""
        chain = [WindowId(name) for name in call.chain]
        try:
            if isinstance(call, m.AuditWindow):
                reply: m.AuditedWindow | m.RanAgain = self._audited(call, chain)
            else:
                reply = self._rerun(call, chain)
        except GliaError as error:
            self._fail(call.id, error)
            return
        self._client.send_reply(reply)
        self._audited_s = time.monotonic()

    def _audited(self, call: m.AuditWindow, chain: Several[WindowId]) -> m.AuditedWindow:
        started = time.perf_counter()
        finding = self._engine.audit(chain, call.tokens, is_canonical=call.canonical)
        value = finding_value(Examined(chain[-1], finding, is_audit=True))
        spent_s = time.perf_counter() - started
        return m.AuditedWindow(call.id, value, spent_s, self._engine.is_calibrated)

    def _rerun(self, call: m.RerunWindows, chain: Several[WindowId]) -> m.RanAgain:
        units = [Unit(each.at, tuple(each.tokens), _spans(each.chosen)) for each in call.units]
        found = self._engine.rerun(chain, units)
        told = [values.RerunValue(each.is_equal, list(each.told)) for each in found]
        return m.RanAgain(call.id, told)

    @property
    def _audit_is_due(self) -> bool:
        """Beside requests: the first soon, and so long between two that these go on."""
        return time.monotonic() - self._audited_s >= _AUDIT_WAITS_S

    def _take(self, call: FromGliad) -> None:
        if isinstance(call, m.Run):
            self._submit(call)
        elif isinstance(call, m.CancelRun):
            sequence = self._runs.get(call.target)
            if sequence is not None:
                self._engine.cancel(sequence)
            self._client.send_reply(m.Done(call.id))
        elif isinstance(call, m.Meet):
            sequence = self._runs.get(call.target)
            if sequence is not None:
                self._engine.meet(sequence, call.position)
            self._client.send_reply(m.Done(call.id))
        elif isinstance(call, m.AuditWindow | m.RerunWindows):
            if not self._audits:
                self._audited_s = time.monotonic()
            self._audits.append(call)
        elif isinstance(call, m.TakeLimits):
            self._engine.take_limits(self._limits())
            self._client.send_reply(m.Done(call.id))
        else:
            if isinstance(call, m.ForgetL0):
                freed_bytes, freed_windows = self._engine.forget_l0()
            else:
                freed_bytes, freed_windows = self._engine.evict_l0()
            self._send_stats()
            self._client.send_reply(m.EvictReply(call.id, freed_bytes, freed_windows))

    def _submit(self, call: m.Run) -> None:
        request = Request(
            tokens=tuple(call.tokens),
            max_tokens=call.max_tokens,
            sampling=_sampling(call.sampling),
            stop_tokens=frozenset(call.stop_tokens),
            stop=tuple(call.stop),
            ignore_eos=call.ignore_eos,
            exact=call.exact,
            chosen=_spans(call.chosen) if call.chosen is not None else None,
            domain=call.domain.domain() if call.domain is not None else None,
        )
        try:
            sequence = self._engine.submit(request)
        except GliaError as error:
            self._fail(call.id, error)
            return
        self._runs[call.id] = sequence
        self._ids[sequence] = call.id
        self._send_stats()

    def _tell(self, outcome: Outcome) -> None:
        run_id = self._ids[outcome.sequence]
        if isinstance(outcome, Emitted):
            self._client.send_event(m.Emitted(run_id, [outcome.token]))
        elif isinstance(outcome, Prefilled):
            self._client.send_event(m.Progress(run_id, "prefill", outcome.done, outcome.total))
        else:
            del self._ids[outcome.sequence], self._runs[run_id]
            self._send_stats()  # first, so that who has the reply finds them in `status`
            if isinstance(outcome, Finished):
                self._client.send_reply(_generated(run_id, outcome.answer))
            else:
                self._fail(run_id, outcome.error)

    def _fail(self, call_id: int, error: GliaError) -> None:
        self._client.send_reply(m.Failed(call_id, error.code, error.message, error.hint))

    def _send_stats(self) -> None:
        l0 = self._engine.l0()
        tier = values.TierValue(
            used_bytes=l0.used_bytes,
            cap_bytes=l0.cap_bytes,
            windows=l0.num_windows,
            hits=l0.num_hits,
            misses=l0.num_misses,
            evictions=l0.num_evicted,
        )
        self._told = (self._engine.num_running, self._engine.num_waiting)
        self._client.send_event(m.EngineStats(self._attach_id, tier, *self._told))


def _spans(chosen: Several[values.ChosenValue]) -> tuple[ChosenSpan, ...]:
    return tuple(ChosenSpan(span.start, span.end, _sampling(span.sampling)) for span in chosen)


def _sampling(how: values.SamplingValue) -> Sampling:
    return Sampling(how.temperature, how.top_p, how.top_k, how.seed)


def _resident_bytes() -> int:
    """Memory of this process without what it shares with gliad (RssAnon and RssFile)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))


def _generated(run_id: int, answer: Answer) -> m.Generated:
    usage = answer.usage
    return m.Generated(
        id=run_id,
        tokens=list(answer.tokens),
        finish_reason=answer.finish_reason,
        tip=answer.tip,
        usage=values.UsageValue(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=len(answer.tokens),
            cached=values.CachedValue(usage.l0, usage.l1, usage.l2, usage.peers),
            computed=usage.computed,
        ),
        ttft_ms=answer.ttft_ms,
        timings_ms=answer.timings_ms,
        warning=answer.warning,
    )


def _not_loaded(error: Exception) -> int:
    if not isinstance(error, GliaError):
        traceback.print_exception(error)
        error = EngineFailed(
            f"the model could not be loaded: {type(error).__name__}: {str(error)[:500]}",
            hint="the log has the traceback",
        )
    line = {"code": error.code, "message": error.message, "hint": error.hint}
    print(json.dumps(line), flush=True)
    return EXIT_NOT_LOADED


def _parse(argv: Several[str]) -> tuple[Path, BootSettings]:
    parser = argparse.ArgumentParser(prog="python -m glia.engine", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--ids-cache", type=Path, required=True)
    parser.add_argument("--convert-dir", type=Path, required=True)
    parser.add_argument("--calibrations", type=Path, required=True)
    parser.add_argument("--l0-bytes", type=int, required=True)
    parser.add_argument("--staging-bytes", type=int, required=True)
    parser.add_argument("--wide-bytes", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-running", type=int, required=True)
    parser.add_argument("--prefill-tokens", type=int, required=True)
    given = parser.parse_args(argv)
    settings = BootSettings(
        model=given.model,
        manifest=given.manifest,
        dtype=given.dtype,
        ids_cache=given.ids_cache,
        convert_dir=given.convert_dir,
        calibrations=given.calibrations,
        l0_bytes=given.l0_bytes,
        staging_bytes=given.staging_bytes,
        wide_bytes=given.wide_bytes,
        num_threads=given.threads,
        max_running=given.max_running,
        prefill_tokens=given.prefill_tokens,
    )
    return given.socket, settings
