"""Measuring how far off honest windows of a model are: a program beside the engines.

It has memory as an engine has, and waits for it as they do. What it measured is used by every
engine that runs the model from then on.
"""

from __future__ import annotations

import logging
import subprocess
from functools import partial

import msgspec
import trio

from daemon.child import end, log_lines
from daemon.engine_process import EngineCommand, why_ended
from daemon.link import Deliver
from daemon.models_registry import KnownModel
from daemon.parts import Parts
from glia.errors import BadRequest, EngineDied, GliaError
from glia.graph.manifest import CANONICAL_DTYPE, DTYPES
from glia.local.messages import Calibrate, CalibrateReply, Progress

_PASSAGE_WINDOWS = 16  # as glia/engine/passages.py has it
_LINE_BYTES = 256 * 1024
_log = logging.getLogger("gliad.calibrating")


class _Line(msgspec.Struct):
    """What the program says: how far it is; at the end, what it wrote; or why it cannot."""

    what: str = ""
    done: int = 0
    total: int = 0
    written: str = ""
    windows: int = 0
    kernels: list[str] = []
    whole: list[tuple[float, float]] = []
    common: list[tuple[float, float]] = []


_decoder = msgspec.json.Decoder(_Line)


async def calibrate(parts: Parts, call: Calibrate, post: Deliver) -> CalibrateReply:
    """Measure, and have engines use it.

    Raises: UnknownModel, ManifestError, BadRequest, CapacityError, EngineError, ModelError,
        StoreError.
    """
    model = await trio.to_thread.run_sync(parts.registry.get, call.model)
    dtype = call.dtype or model.manifest.dtype
    if dtype not in DTYPES:
        raise BadRequest(f"no dtype {dtype[:40]!r}", hint=f"one of: {', '.join(DTYPES)}")
    if dtype == CANONICAL_DTYPE:
        raise BadRequest(
            "class canonical is settled to half a unit in the last place: nothing is measured",
            hint="leave --dtype out, or name the one that engines of this model compute in",
        )
    tell = partial(_tell, post, call.id)
    started_s = trio.current_time()
    if parts.calibrating.locked():
        tell(Progress(0, "waiting for another", 0, 0))
    async with parts.calibrating, parts.engines.room_for(model, dtype, tell):
        command = EngineCommand(parts.config, parts.paths)
        found = await _run(command, model, dtype, call.windows, tell)
    await _tell_engines(parts)
    return CalibrateReply(
        call.id,
        dtype,
        found.windows,
        found.kernels,
        found.whole,
        found.common,
        found.written,
        trio.current_time() - started_s,
    )


async def _run(
    command: EngineCommand, model: KnownModel, dtype: str, num_windows: int, tell: Deliver
) -> _Line:
    """The program's last line. Cancelling ends it."""
    argv = command.calibrating_argv(model, dtype, -(-num_windows // _PASSAGE_WINDOWS))
    try:
        process = await trio.lowlevel.open_process(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command.environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise EngineDied(f"it cannot be measured: {error}") from error
    said = _Said(tell)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_lines, process, _log, f"[{model.name}] ")
            nursery.start_soon(said.read, process)
            await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            await end(process)
    if process.returncode or said.last is None or not said.last.written:
        raise why_ended(process.returncode or 0, said.line, model.name)
    return said.last


class _Said:
    """What the program says, line by line.

    Attributes:
        line: the last whole one. last: what it says, where it can be read.
    """

    def __init__(self, tell: Deliver) -> None:
        self._tell = tell
        self.line = b""
        self.last: _Line | None = None

    async def read(self, process: trio.Process) -> None:
        """Until it says no more; lines that are too long are cut."""
        if process.stdout is None:
            return
        pending = b""
        async for data in process.stdout:
            *lines, pending = (pending + data).split(b"\n")
            pending = pending[:_LINE_BYTES]
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        self.line = line
        try:
            self.last = _decoder.decode(line)
        except msgspec.DecodeError:
            self.last = None
            return
        if self.last.what:
            self._tell(Progress(0, self.last.what, self.last.done, self.last.total))


def _tell(post: Deliver, call_id: int, event: object) -> None:
    if isinstance(event, Progress):
        post(Progress(call_id, event.what, event.done, event.total))


async def _tell_engines(parts: Parts) -> None:
    """One that is not told reads it when it starts again."""
    for link in parts.engines.links():
        try:
            await link.take_limits()
        except GliaError as error:
            _log.info("an engine was not told: %s", error)
