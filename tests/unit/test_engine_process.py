"""An engine's process: its command line, and why it ended."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import trio

from daemon.config import Config, EngineConfig
from daemon.engine_process import EngineCommand, run_engine
from daemon.models_registry import KnownModel
from daemon.paths import Paths
from glia.errors import EngineDied, GliaError, ModelRefused
from glia.graph.manifest import Manifest
from tests.pace import Stopwatch

MODEL = KnownModel("tiny", Path("/m/tiny.model"), "", Manifest("x"))


def command(tmp_path: Path, *program: str, num_threads: int = 0) -> EngineCommand:
    config = Config(tmp_path, tmp_path, engine=EngineConfig(num_threads=num_threads))
    return EngineCommand(config, Paths(tmp_path), program)


def ended(tmp_path: Path, script: str) -> GliaError:
    pids: list[int] = []
    run = command(tmp_path, sys.executable, "-c", script)
    error = trio.run(run_engine, run, MODEL, "float32", pids.append)
    assert len(pids) == 1
    return error


def test_the_command_line(tmp_path: Path) -> None:
    argv = command(tmp_path, "engine", num_threads=3).argv(MODEL, "float32")
    assert argv[0] == "engine"
    flags = dict(zip(argv[1::2], argv[2::2], strict=True))
    assert flags["--socket"] == str(tmp_path / "gliad.sock")
    assert (flags["--model"], flags["--manifest"]) == ("tiny", "/m/tiny.model")
    assert (flags["--dtype"], flags["--threads"]) == ("float32", "3")
    environment = command(tmp_path, "engine", num_threads=3).environment()
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert environment["TQDM_DISABLE"] == "1"


def test_a_refusal_is_the_error_it_names(tmp_path: Path) -> None:
    line = '{"code": "model_refused", "message": "no", "hint": "another"}'
    error = ended(tmp_path, f"import sys; print('noise'); print({line!r}); sys.exit(2)")
    assert isinstance(error, ModelRefused)
    assert (error.message, error.hint) == ("no", "another")


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("import sys; sys.exit(3)", "with exit code 3"),
        ("import sys; print('not json'); sys.exit(2)", "with exit code 2"),
        ("import os; os.kill(os.getpid(), 9)", "by SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "by SIGSEGV"),
        ("import sys; sys.stdout.write('x' * 1_000_000); sys.exit(2)", "with exit code 2"),
        ("import sys; sys.stderr.write('y' * 1_000_000)", "with exit code 0"),
    ],
)
def test_any_other_end_is_a_death(tmp_path: Path, script: str, how: str) -> None:
    error = ended(tmp_path, script)
    assert isinstance(error, EngineDied)
    assert error.message == f"the engine of tiny ended {how}"


def test_what_cannot_be_started_is_a_death(tmp_path: Path) -> None:
    run = command(tmp_path, str(tmp_path / "nothing"))
    error = trio.run(run_engine, run, MODEL, "float32", lambda _: None)
    assert isinstance(error, EngineDied)
    assert "cannot be started" in error.message


def test_cancelling_ends_even_one_that_ignores_sigterm(tmp_path: Path) -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(100)"
    )
    pids: list[int] = []

    async def main() -> float:
        run = command(tmp_path, sys.executable, "-c", script)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_engine, run, MODEL, "float32", pids.append)
            while not pids or not _ignores_sigterm(pids[0]):
                await trio.sleep(0.01)
            watch = Stopwatch(*pids)
            nursery.cancel_scope.cancel()
        return watch.took_s()

    assert trio.run(main) < 4.0
    assert not Path(f"/proc/{pids[0]}").exists()


def _ignores_sigterm(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) & (1 << (signal.SIGTERM - 1)))
    return False
