"""gliad as a process: started, found, refused a second time, ended. No engine."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network_sockets import network_sockets

HOLDER = """
import fcntl, os, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(str(os.getpid()))
lock.flush()
print("held", flush=True)
sys.stdin.read()
"""


class Place:
    """A data dir, and gliad on it."""

    def __init__(self, home: Path) -> None:
        self.data_dir = home / "node"

    def command(self, *words: str) -> list[str]:
        network = ["--offline"] if words[0] == "start" else []
        return [sys.executable, "-m", "daemon", *words, *network, "--data-dir", str(self.data_dir)]

    def __call__(self, *words: str) -> tuple[int, str]:
        """Exit code and what was said."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, check=False, timeout=120
        )
        return done.returncode, done.stdout + done.stderr

    def status(self) -> dict[str, object]:
        code, said = self("status", "--json")
        assert code == 0, said
        found: dict[str, object] = json.loads(said)
        return found


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="glia") as home:  # short: it holds a socket
        made = Place(Path(home))
        yield made
        made("stop")


def until_gone(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([process], [], [], 30)[0]
    os.close(process)


def test_start_returns_when_it_answers_and_stop_when_it_is_gone(place: Place) -> None:
    code, said = place("start")
    assert code == 0, said
    found = place.status()
    pid = int(str(found["pid"]))
    assert f"pid {pid}" in said
    assert str(found["socket"]) in said
    assert found["data_dir"] == str(place.data_dir)
    assert place.data_dir.stat().st_mode & 0o777 == 0o700
    assert (place.data_dir / "gliad.sock").stat().st_mode & 0o777 == 0o600
    assert place("wait", "--timeout", "1")[0] == 0
    assert network_sockets(pid) == []

    code, said = place("start")
    assert (code, f"pid {pid}" in said) == (2, True)
    assert said.splitlines()[-1] == f"hint: gliad stop --data-dir {place.data_dir}"

    process = os.pidfd_open(pid)
    code, said = place("stop")
    assert code == 0, said
    assert select.select([process], [], [], 0)[0]  # it has ended, reaped or not
    os.close(process)
    assert not (place.data_dir / "gliad.sock").exists()
    assert not (place.data_dir / "gliad.lock").exists()
    assert place("stop")[0] == 2


def test_after_kill_9_it_starts_again(place: Place) -> None:
    assert place("start")[0] == 0
    pid = int(str(place.status()["pid"]))
    os.kill(pid, signal.SIGKILL)
    until_gone(pid)
    assert place("status")[0] == 2
    for left in ("gliad.sock", "gliad.lock", "gliad.stderr"):
        assert (place.data_dir / left).exists(), left
    assert place("start")[0] == 0
    assert place.status()["pid"] != pid
    log = (place.data_dir / "gliad.log").read_text()
    assert f"the gliad before (pid {pid}) did not end by itself" in log
    assert place("stop")[0] == 0
    assert place("start")[0] == 0
    assert (place.data_dir / "gliad.log").read_text().count("did not end by itself") == 1


def test_in_the_foreground_it_logs_to_stderr_and_ends_on_a_signal(place: Place) -> None:
    with subprocess.Popen(
        place.command("start", "--foreground"), stderr=subprocess.PIPE, text=True
    ) as child:
        assert place("wait")[0] == 0
        assert place.status()["pid"] == child.pid
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=30)
    assert child.returncode == 0
    assert "starts at" in err


def newer_format(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    (data_dir / "format").write_text("9\n")


def open_to_others(data_dir: Path) -> None:
    data_dir.mkdir()
    data_dir.chmod(0o755)


@pytest.mark.parametrize(
    ("prepare", "code", "says"),
    [
        (newer_format, 6, "format version 9"),
        (open_to_others, 2, "open to other users"),
        (lambda data_dir: data_dir.write_text(""), 6, "File exists"),
        (lambda data_dir: data_dir.symlink_to("/tmp"), 2, "symlink"),  # noqa: S108 -- not used
    ],
)
@pytest.mark.parametrize("how", ["background", "foreground"])
def test_what_keeps_it_from_starting_is_told(prepare, code, says, how, place: Place) -> None:  # type: ignore[no-untyped-def]
    prepare(place.data_dir)
    found, said = place("start", *(["--foreground"] if how == "foreground" else []))
    assert (found, says in said) == (code, True), said
    assert said.splitlines()[-1].startswith("hint: ")


@pytest.fixture
def holder(place: Place) -> Iterator[subprocess.Popen[str]]:
    """A process that has the data dir and does not answer."""
    place.data_dir.mkdir(mode=0o700)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place.data_dir / "gliad.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_one_that_does_not_answer_is_ended_by_stop(
    place: Place, holder: subprocess.Popen[str]
) -> None:
    assert place("start")[0] == 2
    code, said = place("stop")
    assert (code, f"pid {holder.pid}" in said) == (0, True), said
    assert holder.wait(30) == -signal.SIGTERM


def test_wait_gives_up_in_time(place: Place, holder: subprocess.Popen[str]) -> None:
    assert place("wait", "--timeout", "0.2")[0] == 2


def test_a_lock_without_a_holder_is_no_gliad(place: Place) -> None:
    place.data_dir.mkdir(mode=0o700)
    (place.data_dir / "gliad.lock").write_text(f"{os.getpid()}\n")
    assert place("stop")[0] == 2
    assert place("start")[0] == 0
