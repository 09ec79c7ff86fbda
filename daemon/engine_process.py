"""One engine process: started, listened to, ended. What follows from its end is decided elsewhere.

Contract with `python -m glia.engine`: it connects to the socket and attaches. Where the
model cannot be used it prints one JSON line {code, message, hint} to stdout and exits
with 2. What it writes to stderr goes to the log (an engine writes no tokens there).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import trio

from daemon.child import end, how_ended, log_lines
from daemon.config import Config
from daemon.engine_need import wide_bytes
from daemon.models_registry import KnownModel
from daemon.paths import Paths
from glia.errors import EngineDied, GliaError, error_from_code

ENGINE_PROGRAM = (sys.executable, "-m", "glia.engine")
CALIBRATING_PROGRAM = (sys.executable, "-m", "glia.engine.calibrating")
_REFUSED = 2
_SAID_BYTES = 64 * 1024
_log = logging.getLogger("gliad.engine")


class _Refusal(msgspec.Struct):
    code: str
    message: str
    hint: str | None = None


_refusal_decoder = msgspec.json.Decoder(_Refusal)


@dataclass(frozen=True)
class EngineCommand:
    """How engines of this node are started.

    Attributes:
        program: the command up to its flags.
    """

    config: Config
    paths: Paths
    program: tuple[str, ...] = ENGINE_PROGRAM

    def argv(self, model: KnownModel, dtype: str) -> list[str]:
        """The command line for one model and dtype."""
        config = self.config
        flags: dict[str, str | int | Path] = {
            "--socket": self.paths.socket,
            "--model": model.name,
            "--manifest": model.path,
            "--dtype": dtype,
            "--ids-cache": self.paths.models / "ids.json",
            "--convert-dir": self.paths.models / "converted",
            "--calibrations": self.paths.calibrations,
            "--l0-bytes": config.l0.size_bytes,
            "--staging-bytes": config.l1.staging_bytes,
            "--wide-bytes": wide_bytes(config),
            "--threads": config.engine.num_threads,
            "--max-running": config.engine.max_running,
            "--prefill-tokens": config.engine.prefill_tokens,
        }
        return [*self.program, *(str(part) for flag in flags.items() for part in flag)]

    def calibrating_argv(self, model: KnownModel, dtype: str, num_passages: int) -> list[str]:
        """The command line of what measures how far off honest windows of a model are."""
        flags: dict[str, str | int | Path] = {
            "--manifest": model.path,
            "--dtype": dtype,
            "--ids-cache": self.paths.models / "ids.json",
            "--convert-dir": self.paths.models / "converted",
            "--calibrations": self.paths.calibrations,
            "--threads": self.config.engine.num_threads,
            "--passages": num_passages,
        }
        return [*CALIBRATING_PROGRAM, *(str(part) for flag in flags.items() for part in flag)]

    def environment(self) -> dict[str, str]:
        """Threads that wait sleep: two spinning pools on few cores are 20 times slower.

        Bars that libraries draw on stderr are for a terminal, and would fill the log.
        """
        environment = {"OMP_WAIT_POLICY": "PASSIVE", "TQDM_DISABLE": "1", **os.environ}
        if self.config.engine.num_threads:
            environment["OMP_NUM_THREADS"] = str(self.config.engine.num_threads)
        return environment


async def run_engine(
    command: EngineCommand, model: KnownModel, dtype: str, started: Callable[[int], None]
) -> GliaError:
    """Run one engine until it ends, and say why it did. Cancelling ends it.

    Args:
        started: is told the pid.
    """
    try:
        process = await trio.lowlevel.open_process(
            command.argv(model, dtype),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command.environment(),
            start_new_session=True,
        )
    except OSError as error:
        return EngineDied(f"the engine of {model.name} cannot be started: {error}")
    started(process.pid)
    said = bytearray()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log_lines, process, _log, f"[{model.name}] ")
            nursery.start_soon(_collect, process, said)
            await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            await end(process)
    return why_ended(process.returncode or 0, bytes(said), model.name)


def why_ended(code: int, said: bytes, name: str) -> GliaError:
    """Args: said: the end of what it wrote to stdout."""
    if code == _REFUSED:
        line = said.strip().rpartition(b"\n")[2]
        try:
            refusal = _refusal_decoder.decode(line)
        except msgspec.DecodeError:
            pass
        else:
            return error_from_code(refusal.code, refusal.message, refusal.hint)
    return EngineDied(
        f"the engine of {name} ended {how_ended(code)}", hint="look at gliad.log in the data dir"
    )


async def _collect(process: trio.Process, said: bytearray) -> None:
    if process.stdout is None:
        return
    async for data in process.stdout:
        said += data
        del said[:-_SAID_BYTES]
