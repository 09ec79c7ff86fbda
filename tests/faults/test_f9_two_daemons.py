"""F9: two daemons on one data dir, and what kill -9 leaves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import make_chain
from tests.node_parts import FULL, ROOT, RunningNode
from tests.pace import Stopwatch

ROUNDS = 20 if FULL else 5


@pytest.mark.fault("F9")
def test_a_second_gliad_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    chain = make_chain(3)
    with RunningNode(tmp_path / "node") as node:
        author = node.author()
        author.seal(chain)
        watch = Stopwatch()
        second = RunningNode(tmp_path / "node")
        took_s = watch.wait(lambda: second.process.poll() is not None, second.process.pid)
        message = second.wait()
        assert second.process.returncode == 2
        assert f"already_running: gliad is running already at {node.data_dir}" in message
        assert f"pid {node.process.pid}" in message
        assert f"gliad stop --data-dir {node.data_dir}" in message
        assert took_s < 2.0 + _interpreter_s()
        assert author.client.match(chain.tokens) == chain.window_ids
        assert node.client().status().pid == node.process.pid


def _interpreter_s() -> float:
    """What starting Python and importing costs on this machine now; F9's 2 s are gliad's own."""
    watch = Stopwatch()
    process = subprocess.Popen([sys.executable, "-c", "import daemon.node"], cwd=ROOT)
    return watch.wait(lambda: process.poll() is not None, process.pid)


@pytest.mark.fault("F9")
def test_restarting_after_kill_9(tmp_path: Path) -> None:
    """20 rounds in full: lock, socket and store of the dead one stand in nobody's way."""
    with RunningNode(tmp_path / "node") as node:
        chains = []
        for round_number in range(ROUNDS):
            author = node.author()
            chains.append(make_chain(4, seed=round_number))
            author.seal(chains[-1])
            author.client.flush(chains[-1].window_ids)
            author.seal(make_chain(40, seed=1000 + round_number))  # not waited for
            node.kill()
            assert (node.data_dir / "gliad.lock").exists()
            assert (node.data_dir / "gliad.sock").exists()
            node.restart()
            author = node.author()
            for chain in chains:
                assert author.client.match(chain.tokens) == chain.window_ids
        report = node.client().check()
        assert (report.bad, report.bad_windows) == (0, 0)


def test_what_is_not_a_socket_is_not_replaced(tmp_path: Path) -> None:
    data_dir = tmp_path / "node"
    data_dir.mkdir(mode=0o700)
    (data_dir / "gliad.sock").write_text("mine")
    node = RunningNode(data_dir)
    assert "gliad.sock" in node.wait()
    assert node.process.returncode == 2
    assert (data_dir / "gliad.sock").read_text() == "mine"


def test_a_lock_of_a_live_stranger_is_not_believed(tmp_path: Path) -> None:
    """A pid that was given to another process since: nobody holds the lock."""
    data_dir = tmp_path / "node"
    data_dir.mkdir(mode=0o700)
    (data_dir / "gliad.lock").write_text(f"{os.getpid()}\n")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(data_dir / "gliad.sock"))
    with RunningNode(data_dir) as node:
        assert node.client().status().pid == node.process.pid
