"""kill -9 while windows come from a peer: they are never signed here as this node's own."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glia.store.disk import DiskStore
from tests.adopt_writer import MIB, chain_of
from tests.node_parts import FULL, ROOT
from tests.publish_parts import Rig, run_rig, settled

NUM_KILLS = 50 if FULL else 3


def _kill_one(directory: Path, seed: int, num_lines: int, more_s: float) -> int:
    """Kill it after it has begun with so many chains, and a moment. Returns: the last of them."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.adopt_writer", str(directory), str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as lines:
        said = [lines.readline() for _ in range(num_lines)]
        time.sleep(more_s)  # not for something to happen: a random moment
        process.send_signal(signal.SIGKILL)
        said += lines.read().splitlines(keepends=True)
    process.wait()
    return max(int(line) for line in said if line.endswith("\n"))


@pytest.mark.spec(23)
@pytest.mark.fault("F1")
def test_what_came_before_a_kill_is_not_signed_after_it(tmp_path: Path) -> None:
    rng = random.Random(5)
    first = 0
    chains = []
    for _ in range(NUM_KILLS):
        last = _kill_one(tmp_path, first, rng.randint(5, 12), rng.uniform(0, 0.02))
        chains += [chain_of(seed) for seed in range(first, last + 1)]
        first = last + 1
    store = DiskStore(tmp_path / "store", 64 * MIB, MIB)
    stored = {name: chain for chain in chains for name in chain.window_ids if store.get(name)}
    assert stored
    rig = Rig(tmp_path)
    rig.store = store  # type: ignore[assignment]
    rig.publisher = rig.new_publisher()
    assert all(rig.published.foreign.flags(list(stored)))
    whole = [chain for chain in chains if chain.tip in stored][-3:]
    own = chain_of(-1)

    async def body() -> None:
        for number, chain in enumerate([*whole, own]):
            await rig.say(f"c{number}", chain, len(chain.tokens))
        await settled(lambda: rig.visible(own) == len(own.records))
        for chain in whole:
            assert rig.visible(chain) == len(chain.records)
            assert rig.links(chain) == []
        assert rig.spans(own) == [(0, 16), (16, 24)]

    run_rig(rig, body)
    rig.published.close()
    store.close()
