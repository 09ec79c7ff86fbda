"""F37: SIGTERM under load. Ends in time, leaves no socket and no lock, windows whole or absent."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.builders import make_chain
from tests.node_parts import FULL, ROOT, RunningNode

ROUNDS = 100 if FULL else 10
NUM_WRITERS = 3

WRITER = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from glia.client import Client
from glia.errors import GliaError
from tests.builders import make_chain
from tests.node_parts import Author
author = Author(Client.connect(sys.argv[1]))
seed = int(sys.argv[2])
chains = [make_chain(16, seed=seed * 1000 + n) for n in range(6)]
print("writing", flush=True)
try:
    for n, chain in enumerate(chains * 1000):
        author.seal(chain)
        author.client.flush(chain.window_ids)
        if n < len(chains):
            print(n, flush=True)
        author.client.release(author.lease(chain.window_ids).lease)
        author.client.evict("l1")
except GliaError:
    pass
"""


@pytest.mark.fault("F37")
def test_sigterm_under_load(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "node")
    node.until_up()
    node.add_manifest("slow")
    for round_number in range(ROUNDS):
        seeds = [round_number * NUM_WRITERS + n for n in range(NUM_WRITERS)]
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(node.data_dir), str(seed)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in seeds
        ]
        if round_number % 5 == 0:
            next(iter(node.client().generate("slow", [1], max_tokens=1)))
        for writer in writers:  # all are at work
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            assert writer.stdout.readline() == "0\n"
        time.sleep(0.05 * (round_number % 3))  # at different points of the work
        message = node.stop(within_s=5.0)
        assert (node.process.returncode, message) == (0, "")
        left = {path.name for path in node.data_dir.iterdir()}
        assert not left & {"gliad.sock", "gliad.lock"}
        node.restart()
        _assert_whole(node, dict(zip(seeds, map(_acknowledged, writers), strict=True)))
    node.__exit__()


def _acknowledged(writer: subprocess.Popen[str]) -> int:
    """How many chains its flushes were answered for."""
    out, _ = writer.communicate()
    return 1 + len(out.split())


def _assert_whole(node: RunningNode, acknowledged: dict[int, int]) -> None:
    author = node.author()
    for seed, count in acknowledged.items():
        for n in range(count):
            chain = make_chain(16, seed=seed * 1000 + n)
            assert author.client.match(chain.tokens) == chain.window_ids
    report = node.client().check()
    assert (report.bad, report.bad_windows) == (0, 0)
