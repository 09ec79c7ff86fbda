"""A private run under a filter that kills whoever opens a socket other than a Unix one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glia.local import messages as m
from glia.local import values
from tests.node_parts import ROOT, RunningNode
from tests.only_unix import UNAVAILABLE
from tests.tiny_node import SETTINGS, add_manifest, prompt, save_model

FILTER = (sys.executable, str(ROOT / "tests" / "only_unix.py"))


class FilteredNode(RunningNode):
    """A node whose processes can open no socket that leads out."""

    def _spawn(self) -> subprocess.Popen[str]:
        self.models_dir.mkdir(exist_ok=True)
        node = (sys.executable, str(ROOT / "tests" / "node_process.py"))
        return subprocess.Popen(
            [*FILTER, *node, str(self.data_dir), str(self.models_dir), json.dumps(self.settings)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


def ended_by(code: str) -> int:
    return subprocess.run([*FILTER, sys.executable, "-c", code], check=False).returncode


def test_the_filter_ends_whoever_opens_another_socket() -> None:
    unix = "import socket; socket.socket(socket.AF_UNIX)"
    assert ended_by(unix) in (0, UNAVAILABLE)
    if ended_by(unix) == UNAVAILABLE:
        pytest.skip("this kernel sets no filter for us")
    for family in ("AF_INET", "AF_INET6", "AF_NETLINK"):
        code = f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)"
        assert ended_by(code) == -signal.SIGSYS


@pytest.mark.spec(47)
def test_a_private_run_opens_no_socket_that_leads_out(tmp_path: Path) -> None:
    """Cold, warm, conversations, forgetting, a restart: nobody was killed for a socket."""
    if ended_by("") == UNAVAILABLE:
        pytest.skip("this kernel sets no filter for us")
    with FilteredNode(tmp_path / "node", SETTINGS) as node:
        add_manifest(node, save_model(tmp_path / "models" / "tiny"))
        tokens = prompt(60, 5)
        for name in ("mine", "mine2", ""):
            with node.client() as client:
                turn = values.TurnValue(name)
                *_, done = client.generate("tiny", tokens, max_tokens=4, turn=turn)
                assert isinstance(done, m.Generated)
        node.restart()
        with node.client() as client:
            *_, done = client.generate("tiny", tokens, max_tokens=4)
            assert isinstance(done, m.Generated)
            assert done.usage.cached.l2 == 48
            client.explain("tiny", tokens)
            client.forget("mine")
            client.gc(unreferenced=True)
            (engine,) = client.status().engines
            assert engine.num_restarts == 0
            assert Path(f"/proc/{engine.pid}/status").read_text().count("Seccomp:\t2") == 1
