"""An asker, and two that it asks, with SmolLM2: on two hosts where this machine lets us make
some, else on loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from glia.client import Client
from glia.errors import GliaError
from glia.local.messages import Generated
from simulations.shaped.hosts import CannotShape, Hosts, two_hosts
from simulations.shaped.link import JUMBO_MTU
from simulations.shaped.world import answer as answered
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


def answer(node: Gliad, seed: int, visibility: str = "public") -> Generated:
    """Greedy, of a few tokens, to a prompt of its seed's."""
    return answered(node.data_dir, seed, NUM_TOKENS, visibility)


def identity(node: Gliad) -> tuple[str, str]:
    """Its peer id and address, empty while it does not run."""
    try:
        with Client.connect(node.data_dir) as client:
            reply = client.identity()
    except GliaError:
        return "", ""
    return reply.peer_id, next(iter(reply.addresses), "")


class Provider:
    """A gliad of tests/bad_gliad.py that has what another one had; it runs from `become` on."""

    def __init__(self, node: Gliad, before: Sequence[str], listen: str, asker: Gliad) -> None:
        self.node = node
        self._before, self._listen, self._asker = before, listen, asker
        self._running: subprocess.Popen[bytes] | None = None

    def become(self, kind: str) -> str:
        """Be of a kind; the asker is connected and holds nothing against it. Returns: its id."""
        (self.node.data_dir / "kind").write_text(kind)
        (self.node.data_dir / "turned").unlink(missing_ok=True)
        if self._running is None or self._running.poll() is not None:
            self._start()
            until(lambda: bool(identity(self.node)[1]))
        peer, address = identity(self.node)
        with Client.connect(self._asker.data_dir) as client:
            with suppress(GliaError):  # unknown still
                client.forget_peer(peer)
            client.add_peer(address)
        return peer

    @property
    def has_turned(self) -> bool:
        return (self.node.data_dir / "turned").exists()

    def end(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def _start(self) -> None:
        self._running = subprocess.Popen(
            [
                *(*self._before, sys.executable, "-m", "tests.bad_gliad", "--foreground"),
                *("--data-dir", str(self.node.data_dir), "--listen", self._listen),
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@dataclass(frozen=True)
class World:
    """Attributes:
    cold: what a node that knew nobody answered to public prompts, by seed.
    alone: what the asker took for a prompt when it knew nobody.
    hosts: None where all is on loopback; else the asker is on the second one.
    """

    hosts: Hosts | None
    asker: Gliad
    bad: Provider
    honest: Provider
    cold: dict[int, Generated]
    alone: Generated

    def num_bad(self, peer: str) -> int:
        """How often the asker caught it."""
        with Client.connect(self.asker.data_dir) as client:
            return next(each.num_bad for each in client.peers() if each.peer == peer)

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


def _computed(origin: Gliad, seeds: Sequence[int]) -> dict[int, Generated]:
    """What a node answers; all of it is published then, and it is stopped."""
    origin("start", "--listen", LOOPBACK)
    cold = {seed: answer(origin, seed) for seed in seeds}
    num_windows = len(seeds) * (NUM_TOKENS // 16)
    until(lambda: origin.counted("windows_published") >= num_windows)
    origin("stop")
    return cold


@contextmanager
def new_world(seeds: Sequence[int]) -> Iterator[World]:
    """Its link has a large MTU, which costs this machine less."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glia")))
        hosts = None
        with suppress(CannotShape):
            hosts = stack.enter_context(two_hosts(JUMBO_MTU))
        before, other = (hosts.one, hosts.other) if hosts else ((), ())
        listen = hosts.listen if hosts else (LOOPBACK, LOOPBACK)
        origin, asker = Gliad(directory / "origin"), Gliad(directory / "asker", before=other)
        for each in (origin, asker):
            (each.data_dir / "glia.toml").write_text(SETTINGS)
            stack.callback(each.end)
        asker("start", "--listen", listen[1])
        alone: list[Generated] = []
        asking = threading.Thread(target=lambda: alone.append(answer(asker, len(seeds), "private")))
        asking.start()  # it loads its model, too, and knows then how fast it computes
        cold = _computed(origin, seeds)
        asking.join()
        providers = []
        for name in ("bad", "honest"):
            node, ignored = Gliad(directory / name, before=before), shutil.ignore_patterns(*OWN)
            shutil.copytree(origin.data_dir, node.data_dir, ignore=ignored, dirs_exist_ok=True)
            providers.append(Provider(node, before, listen[0], asker))
            stack.callback(providers[-1].end)
        yield World(hosts, asker, *providers, cold, *alone)
