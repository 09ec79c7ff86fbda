"""F33, F34: files from a hostile author run nothing, cost little, and are refused in words.

That shipped code loads no pickles is held by tests/test_packages.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from glia.errors import BadModelFile
from glia.model.read import parse_json
from tests.faults.model_file_noise import pickle_that_kills
from tests.pace import Stopwatch

ROOT = Path(__file__).parents[2]
NUM_ROUNDS = 2000


@pytest.mark.fault("F33")
def test_mutated_files_are_refused_cheaply_and_run_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.model_file_noise", str(tmp_path), str(NUM_ROUNDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found = json.loads(done.stdout)
    assert found["canary"]
    assert found["foreign"] == []
    assert found["rounds"] == NUM_ROUNDS
    assert found["refused"] > NUM_ROUNDS // 2
    assert found["slowest_s"] < 1
    assert found["grown_mib"] < 64


def test_the_canary_dies_where_a_pickle_is_loaded(tmp_path: Path) -> None:
    # Otherwise the test above could not fail. Only here, on our own bytes.
    canary = tmp_path / "canary"
    canary.touch()
    load = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"
    killer = pickle_that_kills(canary)
    subprocess.run([sys.executable, "-c", load], input=killer, check=True, timeout=60)
    assert not canary.exists()


MIB = 1024 * 1024
BOMBS = {
    "empty lists": b'{"a":[' + b"[]," * (MIB // 3 - 10) + b"[]]}",
    "empty objects": b'{"a":[' + b"{}," * (MIB // 3 - 10) + b"{}]}",
    "numbers": b'{"a":[' + b"1," * (MIB // 2 - 10) + b"1]}",
    "keys": b"{" + b",".join(b'"%d":0' % i for i in range(100_000)) + b"}",
    "depth": b'{"a":' * 100_000,
    "depth in lists": b"[" * MIB,
    "digits": b'{"a":' + b"9" * (MIB - 10) + b"}",
}


@pytest.mark.fault("F34")
@pytest.mark.parametrize("bomb", BOMBS)
def test_json_bombs_are_refused_at_once(bomb: str) -> None:
    data = BOMBS[bomb]
    times_s = []
    for _ in range(3):
        watch = Stopwatch()
        with pytest.raises(BadModelFile):
            parse_json(data, bomb)
        times_s.append(watch.took_s())
    tracemalloc.start()
    try:
        with pytest.raises(BadModelFile):
            parse_json(data, bomb)
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert min(times_s) < 0.050
    assert grown < 4 * MIB
