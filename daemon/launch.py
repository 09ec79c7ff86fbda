"""Starting gliad as a process of its own, and ending it. The process is `daemon.process`."""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from daemon.network_config import NetworkFlags
from daemon.paths import Paths
from glia.client import Client
from glia.errors import (
    AlreadyRunning,
    GliaError,
    NotRunning,
    StoreBroken,
    error_from_code,
)

_POLL_S = 0.02
_REPORT_BYTES = 16 * 1024


class Report(msgspec.Struct):
    """What a gliad that could not start says to its starter, as JSON."""

    code: str
    message: str
    hint: str | None


def command(data_dir: Path, config: Path | None, flags: NetworkFlags) -> list[str]:
    """The command line of the process that is gliad."""
    named = ["--config", str(config)] if config else []
    where = ["--data-dir", str(data_dir)]
    return [sys.executable, "-m", "daemon.process", *where, *named, *flags.argv()]


def become(data_dir: Path, config: Path | None, flags: NetworkFlags) -> NoReturn:
    """Turn this process into gliad, in the foreground."""
    refuse_second(data_dir)
    os.execv(sys.executable, [*command(data_dir, config, flags), "--foreground"])  # noqa: S606 -- ours


def start(data_dir: Path, config: Path | None, flags: NetworkFlags, timeout_s: float) -> int:
    """Start gliad in the background and return its pid when it answers.

    Raises: AlreadyRunning, NotRunning (not ready in time), or what kept it from starting.
    """
    refuse_second(data_dir)
    _make_private(data_dir)
    report, report_end = os.pipe()
    try:
        child = _spawn(command(data_dir, config, flags), data_dir, report_end)
        os.close(report_end)
        report_end = -1
        return _until_ready(child, report, data_dir, time.monotonic() + timeout_s)
    finally:
        os.close(report)
        if report_end >= 0:
            os.close(report_end)


def stop(data_dir: Path, timeout_s: float) -> int:
    """End gliad and return its pid when the process is gone.

    One that does not answer is sent SIGTERM.
    Raises: NotRunning; also where it is still there after `timeout_s`.
    """
    pid = lock_holder(data_dir)
    process = os.pidfd_open(pid) if pid else None
    try:
        try:
            with Client.connect(data_dir, timeout_s=1.0) as client:
                pid = client.welcome.pid
                if process is None:  # on a full disk the lock may not say who has it
                    process = os.pidfd_open(pid)
                client.shutdown()
        except NotRunning:
            if not pid:
                raise
            os.kill(pid, signal.SIGTERM)
        if process is not None and not select.select([process], [], [], timeout_s)[0]:
            raise NotRunning(
                f"gliad (pid {pid}) has not ended after {timeout_s:g} s", hint=f"kill -9 {pid}"
            )
    finally:
        if process is not None:
            os.close(process)
    return pid


def refuse_second(data_dir: Path) -> None:
    """Raises: AlreadyRunning where a gliad has this data dir."""
    pid = lock_holder(data_dir)
    if pid:
        raise AlreadyRunning(
            f"gliad is running already at {data_dir}: pid {pid}",
            hint=f"gliad stop --data-dir {shlex.quote(str(data_dir))}",
        )


def lock_holder(data_dir: Path) -> int:
    """The pid of the gliad that holds the data dir's lock, 0 where none does."""
    try:
        with open(Paths(data_dir).lock) as lock:
            pid = int(lock.read(32))
            # Asked first: probing takes the lock for a moment, which must not meet
            # a gliad that starts.
            os.kill(pid, 0)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return pid
    except (OSError, ValueError):
        return 0
    return 0


def _spawn(argv: list[str], data_dir: Path, report_end: int) -> subprocess.Popen[bytes]:
    path = Paths(data_dir).stderr
    try:
        with open(path, "wb", opener=_private) as stderr:
            return subprocess.Popen(  # noqa: S603 -- our own module
                [*argv, "--report-fd", str(report_end)],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=(report_end,),
                start_new_session=True,
            )
    except OSError as error:
        raise StoreBroken(
            f"{error.filename or path}: {error.strerror}", hint="choose another: --data-dir DIR"
        ) from error


def _until_ready(child: subprocess.Popen[bytes], report: int, data_dir: Path, end_s: float) -> int:
    while True:
        if select.select([report], [], [], _POLL_S)[0]:
            raise _failure(os.read(report, _REPORT_BYTES), child, data_dir)
        try:
            with Client.connect(data_dir, timeout_s=0.0) as client:
                if client.welcome.pid == child.pid:
                    child.returncode = 0  # it lives on: subprocess need not warn of it
                    return child.pid
        except NotRunning:
            pass
        if time.monotonic() > end_s:
            child.terminate()
            child.wait()
            raise NotRunning("gliad was not ready in time", hint=f"look at {Paths(data_dir).log}")


def _failure(data: bytes, child: subprocess.Popen[bytes], data_dir: Path) -> GliaError:
    code = child.wait()
    try:
        said = msgspec.json.decode(data, type=Report)
    except msgspec.MsgspecError:
        stderr = Paths(data_dir).stderr
        return NotRunning(f"gliad ended at once, exit code {code}", hint=f"look at {stderr}")
    return error_from_code(said.code, said.message, said.hint)


def _make_private(data_dir: Path) -> None:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreBroken(
            f"{data_dir}: {error.strerror}", hint="choose another: --data-dir DIR"
        ) from error


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
