"""F6: a node without a file descriptor left: it goes on, and serves again when there are some."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from glia.client import Client
from glia.local import messages as m
from glia.local.address import SOCKET_NAME
from glia.local.frames import encode_frame
from tests.builders import make_chain
from tests.node_parts import RunningNode, until
from tests.pace import PATIENCE_S, Stopwatch

LIMIT = 128
SERVED_S = 5.0


def connected(data_dir: Path) -> socket.socket:
    """One more that says Hello and nothing else."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(os.fspath(data_dir / SOCKET_NAME))
    sock.sendall(encode_frame(m.Hello(1, m.PROTOCOL_VERSION, "client", "greedy")))
    return sock


@pytest.mark.fault("F6")
def test_descriptors_run_out_and_come_back(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", {"api": {"max_clients": 4096}}) as node:
        node.add_manifest("echo")
        early = node.client()
        list(early.generate("echo", [1, 2], max_tokens=1))
        author, chain = node.author(), make_chain(4)
        author.seal(chain)
        author.client.flush(chain.window_ids)
        pid = node.process.pid
        num_fds = len(os.listdir(f"/proc/{pid}/fd"))
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (LIMIT, before[1]))

        greedy = [connected(node.data_dir) for _ in range(2 * LIMIT)]
        until(lambda: early.status().counters.get("accept_failed", 0) > 0)
        until(lambda: len(os.listdir(f"/proc/{pid}/fd")) > LIMIT * 2 // 3)
        assert list(early.generate("echo", [1, 2], max_tokens=1))  # who is in is served
        assert author.client.match(chain.tokens) == chain.window_ids
        assert node.process.poll() is None

        for sock in greedy:
            sock.close()
        watch = Stopwatch(pid)
        with Client.connect(node.data_dir, timeout_s=PATIENCE_S) as honest:
            assert honest.status().pid == pid
            assert watch.took_s() <= SERVED_S
            more = make_chain(4, seed=1)
            author.seal(more)
            author.client.flush(more.window_ids)
            assert honest.check().bad == 0
            assert not honest.status().counters.get("crashed")
        until(lambda: abs(len(os.listdir(f"/proc/{pid}/fd")) - num_fds) <= 5)
