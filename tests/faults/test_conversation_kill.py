"""kill -9 while turns are written: a conversation is as before the turn or after, never between."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import NotRunning
from glia.local import messages as m
from glia.local import values
from tests.conversation_parts import log_of, opened
from tests.conversation_writer import NAMES, log_after
from tests.node_parts import FULL, ROOT, RunningNode

NUM_KILLS = 50 if FULL else 8
NUM_NODE_KILLS = 50 if FULL else 4


def _kill_one(directory: Path, num_lines: int, more_s: float) -> dict[str, int]:
    """Write, kill after that many acknowledged turns and a moment; how many each has."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conversation_writer", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as lines:
        acked = dict.fromkeys(NAMES, 0)
        for _ in range(num_lines):
            name, count = lines.readline().split()
            acked[name] = int(count)
        time.sleep(more_s)  # not for something to happen: a random moment
        process.send_signal(signal.SIGKILL)
        for line in lines.read().splitlines(keepends=True):
            if line.endswith("\n"):
                name, count = line.split()
                acked[name] = int(count)
    assert process.wait() == -signal.SIGKILL
    return acked


@pytest.mark.spec(65)
@pytest.mark.fault("F1")
def test_a_killed_writer_leaves_whole_turns(tmp_path: Path) -> None:
    rng = random.Random(3)
    acked: dict[str, int] = dict.fromkeys(NAMES, 0)
    for _ in range(NUM_KILLS):
        more = _kill_one(tmp_path, rng.randint(1, 9), rng.uniform(0, 0.02))
        acked = {name: max(acked[name], more[name]) for name in NAMES}
        talks = opened(tmp_path)
        for name in NAMES:
            if name not in talks:
                assert not acked[name]
                continue
            num_turns = talks.head(name).num_turns
            assert num_turns in (acked[name], acked[name] + 1)
            assert list(log_of(talks, name)) == log_after(name, num_turns)
            acked[name] = num_turns
        assert not list(tmp_path.glob("*.partial"))
    assert min(acked.values()) > 1


@pytest.mark.spec(65)
def test_a_killed_node_leaves_whole_turns(tmp_path: Path) -> None:
    rng = random.Random(4)
    log: list[int] = []
    with RunningNode(tmp_path / "data") as node:
        node.add_manifest("echo")
        for _ in range(NUM_NODE_KILLS):
            client = node.client()
            log = _say(client, log, rng)  # its engine is there
            threading.Timer(rng.uniform(0.0, 0.05), node.process.kill).start()
            after = log
            with contextlib.suppress(NotRunning):
                while True:
                    log, after = after, [*after, *_next(after, rng)]
                    assert _say(client, log, rng, after) == after
            node.restart()
            found = list(node.client().conversation("talk").tokens)
            assert found in (log, after)
            log = found
    assert len(log) > 25 * NUM_NODE_KILLS


def _next(log: list[int], rng: random.Random) -> list[int]:
    """Twenty tokens more, and the answer that they get."""
    asked = [rng.randrange(50_000) for _ in range(20)]
    return [*asked, (log or asked)[0] + 1]


def _say(
    client: Client, log: list[int], rng: random.Random, after: list[int] | None = None
) -> list[int]:
    """One turn, durable when this returns; the log is then `after`."""
    after = after or [*log, *_next(log, rng)]
    turn = values.TurnValue("talk", len(log))
    *_, last = client.generate("echo", after[:-1], max_tokens=1, turn=turn)
    assert isinstance(last, m.Generated)
    assert last.tokens == after[-1:]
    return after
