"""F1: kill -9 in the middle of writing. F9: locks of the living and of the dead."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glia.errors import StoreLocked
from glia.store.disk import DiskStore
from tests.builders import make_chain
from tests.pace import Stopwatch
from tests.store_parts import FULL, MIB, assert_holds, joined, load, sealed
from tests.store_writer import NUM_WINDOWS, SEGMENT_BYTES, chain_of

ROOT = Path(__file__).resolve().parents[2]
NUM_KILLS = 200 if FULL else 12
NUM_RESTARTS = 20
ROUNDS_PER_STORE = 20
CAP = 4096 * MIB


def _start(path: Path, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.store_writer", str(path), str(seed)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe)


def _kill_after(process: subprocess.Popen[bytes], num_lines: int, more_ms: float) -> list[int]:
    """Kill after that many puts and a moment more; the windows it had acknowledged."""
    assert process.stdout is not None
    assert process.stdin is not None
    fd = process.stdout.fileno()
    said = b""
    while said.count(b"\n") < num_lines:
        data = os.read(fd, 4096)
        assert data, "the writer ended by itself"
        said += data
    deadline = time.monotonic() + more_ms / 1000
    while (left := deadline - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        said += os.read(fd, 4096)
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    process.stdin.close()
    whole_lines = said[: said.rfind(b"\n") + 1]
    return [int(number) for number in whole_lines.split()]


def _verify(path: Path, seed: int, acked: list[int]) -> None:
    """Reopened in time, nothing acknowledged lost, nothing wrong said, index = blocks."""
    watch = Stopwatch()
    store = DiskStore(path, CAP, SEGMENT_BYTES)
    assert watch.took_s() <= 2.0
    windows = sealed(chain_of(seed))
    assert_holds(store, [windows[number] for number in acked])
    answers = load(store, windows)
    assert all(a is None or a == joined(w) for a, w in zip(answers, windows, strict=True))
    report = store.check()
    assert (report.bad, report.bad_windows) == (0, 0)
    stats = store.stats()
    assert (report.checked, report.windows) == (stats.num_blocks, stats.num_windows)
    assert stats.num_quarantined == 0
    store.close()


@pytest.mark.spec(25, 30)
@pytest.mark.fault("F1")
def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path: Path) -> None:
    rng = random.Random(1)
    acked: dict[int, list[int]] = {}
    for seed in range(NUM_KILLS):
        path = tmp_path / f"store-{seed // ROUNDS_PER_STORE}"
        process = _start(path, seed)
        acked[seed] = _kill_after(process, rng.randint(1, 12), rng.uniform(0, 12))
        _verify(path, seed, acked[seed])
    assert 0 < sum(map(len, acked.values())) < NUM_KILLS * NUM_WINDOWS
    for seed, numbers in acked.items():  # also after all the kills that came later
        store = DiskStore(tmp_path / f"store-{seed // ROUNDS_PER_STORE}", CAP)
        windows = sealed(chain_of(seed))
        assert_holds(store, [windows[number] for number in numbers])
        store.close()


@pytest.mark.fault("F9")
def test_a_second_process_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    process = _start(path, 0)
    assert process.stdout is not None
    acked = [int(number) for number in process.stdout.readline().split()]
    watch = Stopwatch()
    with pytest.raises(StoreLocked) as caught:
        DiskStore(path, CAP)
    assert watch.took_s() <= 2.0
    assert str(process.pid) in caught.value.message
    assert caught.value.hint
    acked += _kill_after(process, 1, 0)
    _verify(path, 0, acked)


def test_a_second_object_in_the_same_process_is_refused(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store", CAP)
    with pytest.raises(StoreLocked, match=str(os.getpid())):
        DiskStore(tmp_path / "store", CAP)
    windows = sealed(make_chain(1))
    store.put(windows)
    assert_holds(store, windows)
    store.close()
    DiskStore(tmp_path / "store", CAP).close()


@pytest.mark.fault("F9")
def test_a_dead_holders_lock_is_none(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for seed in range(NUM_RESTARTS):
        process = _start(path, seed)
        acked = _kill_after(process, 1, 0)
        assert (path / "lock").exists()
        watch = Stopwatch()
        store = DiskStore(path, CAP, SEGMENT_BYTES)
        assert watch.took_s() <= 2.0
        assert_holds(store, [sealed(chain_of(seed))[number] for number in acked])
        store.close()
