"""Nodes that are started, asked and stopped with the command line, on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from glia.client import Client
from tests.node_parts import ROOT, until

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
OFFLINE = "[network]\nenabled = false\n"  # a test that wants a network says --listen LOOPBACK
SMALL = """
[l0]
size = "4MiB"
[l1]
size = "8MiB"
staging_size = "1MiB"
prefault_size = "0B"
[engine]
num_threads = 1
"""


class Gliad:
    """A data dir, and the gliad there."""

    def __init__(self, data_dir: Path, settings: str = "", before: Sequence[str] = ()) -> None:
        data_dir.mkdir(mode=0o700)
        (data_dir / "glia.toml").write_text(
            SMALL + settings + ("" if "[network]" in settings else OFFLINE)
        )
        self.data_dir = data_dir
        self._before = before

    def __call__(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Say a verb; it must end with this code."""
        done = subprocess.run(
            [
                *(*self._before, sys.executable, "-m", "daemon"),
                *(*words, "--data-dir", str(self.data_dir)),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json").stdout)

    @property
    def pid(self) -> int:
        return int((self.data_dir / "gliad.lock").read_text())

    @property
    def address(self) -> str:
        """Where others reach it, once they do; asked without a process."""
        until(lambda: bool(self._addresses()))
        return self._addresses()[0]

    def _addresses(self) -> list[str]:
        with Client.connect(self.data_dir) as client:
            return client.identity().addresses

    def counted(self, name: str) -> int:
        """A counter of its status; asked without a process."""
        with Client.connect(self.data_dir) as client:
            return client.status().counters.get(name, 0)

    @property
    def resident_mb(self) -> float:
        """Memory of its own, MB: what is resident without what is shared, as L1."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        own = [line.split() for line in lines if line.startswith(("RssAnon:", "RssFile:"))]
        return sum(int(size) for _, size, _ in own) * 1024 / 1e6

    def connected(self) -> list[str]:
        """Ids of peers that are connected; asked without a process, so that it is quick."""
        with Client.connect(self.data_dir) as client:
            return [each.peer for each in client.peers() if each.connection]

    def why_off(self) -> str:
        """Why the network is off."""
        with Client.connect(self.data_dir) as client:
            network = client.status().network
        assert network is not None
        return network.why_off

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Whatever state it is in."""
        if (self.data_dir / "gliad.lock").exists():
            pid = self.pid
            with suppress(ProcessLookupError):
                self.kill()
            until(lambda: not Path(f"/proc/{pid}/fd/0").exists())


@contextmanager
def gliads(num: int, settings: str = "", before: Sequence[str] = ()) -> Iterator[tuple[Gliad, ...]]:
    """So many data dirs; what runs there at the end is killed."""
    with tempfile.TemporaryDirectory(prefix="glia") as home:  # short: it holds sockets
        made = tuple(Gliad(Path(home) / str(number), settings, before) for number in range(num))
        try:
            yield made
        finally:
            for each in made:
                each.end()
