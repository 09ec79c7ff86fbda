"""What tests of a running node share: starting and ending one, and being its client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest

from glia.client import Client
from glia.errors import NotRunning
from glia.graph.ids import WindowId
from glia.local.messages import Leased
from tests.builders import CLASS, MODEL, TINY, Chain
from tests.pace import PATIENCE_S, Stopwatch

FULL = bool(os.environ.get("GLIA_FULL"))
ROOT = Path(__file__).resolve().parent.parent
MIB = 1024 * 1024
SMALL = {
    "l1": {"size_bytes": 4 * MIB, "staging_bytes": MIB, "prefault_bytes": 0},
    "l2": {"size_bytes": 64 * MIB, "segment_bytes": MIB},
}


class RunningNode:
    """A gliad process of its own, at `data_dir`."""

    def __init__(self, data_dir: Path, settings: dict[str, dict[str, float]] | None = None) -> None:
        self.data_dir = data_dir
        self.models_dir = data_dir.parent / "manifests"
        self.settings = {**SMALL, **(settings or {})}
        self._clients: list[Client] = []
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[str]:
        self.models_dir.mkdir(exist_ok=True)
        return subprocess.Popen(
            [
                *(sys.executable, str(ROOT / "tests" / "node_process.py")),
                *(str(self.data_dir), str(self.models_dir), json.dumps(self.settings)),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        self.until_up()
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.kill()

    def until_up(self) -> None:
        def answers() -> bool:
            assert self.process.poll() is None, self.process.communicate()[1]
            try:
                self.client(timeout_s=5.0).close()
            except NotRunning:
                return False
            return True

        until(answers)

    def client(self, *, kind: str = "client", timeout_s: float = 0.0) -> Client:
        """Closed with the node, if not before."""
        self._clients.append(Client.connect(self.data_dir, kind=kind, timeout_s=timeout_s))
        return self._clients[-1]

    def author(self, numerics_class: str = CLASS) -> Author:
        return Author(self.client(), numerics_class)

    def add_manifest(self, name: str) -> None:
        (self.models_dir / f"{name}.model").write_text(f'source = "{name}"\n')

    def stop(self, within_s: float = PATIENCE_S) -> str:
        """SIGTERM; what it wrote to stderr. It takes `within_s` at most to end."""
        watch = Stopwatch(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        assert watch.wait(lambda: self.process.poll() is not None) <= within_s
        return self.wait()

    def wait(self) -> str:
        """Until it ends by itself; what it wrote to stderr."""
        assert self.process.stderr is not None
        self.process.wait(PATIENCE_S)
        with self.process.stderr as stderr:
            return stderr.read()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def restart(self) -> None:
        self.kill()
        self.process = self._spawn()
        self.until_up()

    @property
    def log(self) -> str:
        return (self.data_dir / "gliad.log").read_text()


class Author:
    """An attached client that seals the windows of `make_chain`."""

    def __init__(self, client: Client, numerics_class: str = CLASS) -> None:
        self.client = client
        client.attach(MODEL, TINY, numerics_class)
        client.make_staging(64 * TINY.window_payload_bytes)

    def seal(
        self, chain: Chain, start: int = 0, end: int | None = None, num_steps: int = 0
    ) -> tuple[list[WindowId], int]:
        """Stage and seal windows `start` to `end`; their names and how many were known."""
        end = len(chain.records) if end is None else end
        names: list[WindowId] = []
        num_known = 0
        for first in range(start, end, 64):
            last = min(first + 64, end)
            payloads = b"".join(payload_of(chain, index) for index in range(first, last))
            self.client.staging[: len(payloads)] = payloads
            size = TINY.block_size
            ticket = self.client.seal_begin(
                chain.records[first].prev if first else None,
                first * size,
                chain.tokens[first * size : last * size],
                0,
                num_steps,
            )
            sealed = self.client.seal_end(ticket)
            names += [WindowId(name) for name in sealed.windows]
            num_known += sealed.num_known
        return names, num_known

    def lease(self, names: Sequence[WindowId]) -> Leased:
        return self.client.lease_end(self.client.lease_begin(names))

    def bytes_of(self, leased: Leased) -> list[bytes]:
        """Per leased window its particles, joined."""
        layers = len(TINY.layers)
        windows = []
        for index in range(len(leased.tiers)):
            parts = []
            for layer in range(layers):
                at = 8 * (index * layers + layer)
                offset = int.from_bytes(leased.offsets[at : at + 8], "little")
                parts.append(self.client.arena[offset : offset + TINY.particle_sizes[layer]])
            windows.append(b"".join(parts))
        return windows

    def tiers_of(self, names: Sequence[WindowId]) -> list[int]:
        """Where each window is, asked one by one without keeping it."""
        tiers = []
        for name in names:
            leased = self.lease([name])
            tiers.append(leased.tiers[0] if leased.tiers else 0)
            self.client.release(leased.lease)
        return tiers


def payload_of(chain: Chain, index: int) -> bytes:
    """Raw payloads of one window, all layers."""
    header = chain.profile.header_bytes
    return b"".join(particle[header:] for particle in chain.particles[index])


def particles_of(chain: Chain) -> list[bytes]:
    """Per window its particles, joined."""
    return [b"".join(particles) for particles in chain.particles]


def until(condition: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not so after {limit_s} s")
        time.sleep(0.01)
