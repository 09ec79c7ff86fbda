"""An asker, and those it asks, with SmolLM2: on two hosts where this machine lets us make some,
else on loopback."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from glia.client import Client
from glia.errors import GliaError
from glia.local import values
from glia.local.messages import Generated
from simulations.shaped.hosts import CannotShape, Hosts, two_hosts
from simulations.shaped.link import JUMBO_MTU
from tests.gliad_parts import LOOPBACK, OFFLINE, Gliad
from tests.node_parts import ROOT, until

NUM_TOKENS = 480
SETTINGS = f"""
models_dir = "{ROOT / "models"}"
{OFFLINE}
[l0]
size = "64MiB"
[l1]
size = "96MiB"
staging_size = "16MiB"
prefault_size = "0B"
[engine]
num_threads = 1
"""
OWN = ("*.sock", "*.lock", "*.key", "*.log", "peers.json")  # of a node, not of what it knows


def prompt(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(100, 40_000) for _ in range(NUM_TOKENS)]


def answer(node: Gliad, seed: int, visibility: str = "public") -> Generated:
    """Greedy, of a few tokens."""
    said = values.MessageValue("user", None, 0, NUM_TOKENS, visibility)
    with Client.connect(node.data_dir) as client:
        *_, last = client.generate(
            "smollm2",
            prompt(seed),
            max_tokens=4,
            ignore_eos=True,
            turn=values.TurnValue(messages=[said]),
        )
    assert isinstance(last, Generated)
    return last


def counted(node: Gliad, name: str) -> int:
    with Client.connect(node.data_dir) as client:
        return client.status().counters.get(name, 0)


def name_of(node: Gliad) -> str:
    with Client.connect(node.data_dir) as client:
        return client.identity().peer_id


@dataclass(frozen=True)
class World:
    """Attributes:
    origin: has computed in public what is in `cold`, by seed; it does not run.
    alone: what the asker computed by itself, knowing nobody.
    hosts: None where all is on loopback; else the asker is on the second one.
    """

    directory: Path
    hosts: Hosts | None
    origin: Gliad
    asker: Gliad
    cold: dict[int, Generated]
    alone: Generated

    def ask(
        self, seed: int, is_done: Callable[[Generated], bool], limit_s: float = 60
    ) -> Generated:
        """Until it is so, from the beginning each time: on a busy machine peers may be too slow
        for what asking them may cost. The tokens are those of the cold run, each time."""
        deadline_s = time.monotonic() + limit_s
        while True:
            found = answer(self.asker, seed)
            assert found.tokens == self.cold[seed].tokens
            if is_done(found):
                return found
            assert time.monotonic() < deadline_s, found
            with Client.connect(self.asker.data_dir) as client:
                client.forget(found.conversation)

    @contextmanager
    def peer(self, kind: str) -> Iterator[Gliad]:
        """A gliad that has what the origin has, of a kind of tests/bad_gliad.py; connected."""
        before, listen = (self.hosts.one, self.hosts.listen[0]) if self.hosts else ((), LOOPBACK)
        data_dir = self.directory / kind.replace(" ", "")
        node = Gliad(data_dir, before=before)
        ignored = shutil.ignore_patterns(*OWN)
        shutil.copytree(self.origin.data_dir, data_dir, ignore=ignored, dirs_exist_ok=True)
        running = subprocess.Popen(
            [
                *(*before, sys.executable, "-m", "tests.bad_gliad", kind, "--foreground"),
                *("--data-dir", str(data_dir), "--listen", listen),
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: _is_up(node), 30)
            with Client.connect(data_dir) as client:
                address = client.identity().addresses[0]
            with Client.connect(self.asker.data_dir) as client:
                peer = client.add_peer(address).peer
            yield node
            with Client.connect(self.asker.data_dir) as client:
                client.forget_peer(peer)
        finally:
            running.kill()
            running.wait()
            shutil.rmtree(data_dir)


def _is_up(node: Gliad) -> bool:
    try:
        return bool(name_of(node))
    except GliaError:
        return False


@contextmanager
def new_world(seeds: Sequence[int]) -> Iterator[World]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glia")))
        hosts = None
        with suppress(CannotShape):
            hosts = stack.enter_context(two_hosts(JUMBO_MTU))
        origin = Gliad(directory / "origin")
        asker = Gliad(directory / "asker", before=hosts.other if hosts else ())
        for each in (origin, asker):
            (each.data_dir / "glia.toml").write_text(SETTINGS)
            stack.callback(each.end)
        origin("start", "--listen", LOOPBACK)
        cold = {seed: answer(origin, seed) for seed in seeds}
        num_windows = len(seeds) * (NUM_TOKENS // 16)
        until(lambda: counted(origin, "windows_published") >= num_windows)
        origin("stop")
        asker("start", "--listen", hosts.listen[1] if hosts else LOOPBACK)
        alone = answer(asker, len(seeds), "private")  # from now on it knows how fast it is
        yield World(directory, hosts, origin, asker, cold, alone)
