"""kill -9 while conversations are published: every link is there once, also after it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.node_parts import FULL, ROOT
from tests.publish_parts import Rig
from tests.publish_writer import NAMES, chain_of

NUM_KILLS = 50 if FULL else 4


def _spawn(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.publish_writer", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def _kill_one(directory: Path, num_lines: int, more_s: float) -> set[str]:
    """Publish, kill after so many lines and a moment; the links that were said to be there."""
    process = _spawn(directory)
    assert process.stdout is not None
    with process.stdout as lines:
        said = [lines.readline() for _ in range(num_lines)]
        time.sleep(more_s)  # not for something to happen: a random moment
        process.send_signal(signal.SIGKILL)
        said += lines.read().splitlines(keepends=True)
    process.wait()
    return {line.strip() for line in said if line.endswith("\n")} - {"done"}


@pytest.mark.spec(19)
@pytest.mark.fault("F1")
def test_a_killed_publisher_signs_every_span_once(tmp_path: Path) -> None:
    rng = random.Random(7)
    said: set[str] = set()
    for _ in range(NUM_KILLS):
        said |= _kill_one(tmp_path, rng.randint(1, 12), rng.uniform(0, 0.05))
    last = _spawn(tmp_path)
    assert last.stdout is not None
    with last.stdout as lines:
        assert lines.read().endswith("done\n")
    assert last.wait() == 0
    rig = Rig(tmp_path)
    links = [link for name in NAMES for link in rig.links(chain_of(name))]
    attested = Counter((link.claim.base, link.claim.tip) for link in links)
    assert set(attested.values()) == {1}
    assert said <= {link.link_id.hex() for link in links}
    numbers = [link.sequence for link in links]
    assert len(set(numbers)) == len(numbers) == rig.published.stats().num_links
    for name in NAMES:
        covered = {n for start, end in rig.spans(chain_of(name)) for n in range(start, end)}
        assert covered == set(range(len(chain_of(name).records)))
    rig.published.close()
