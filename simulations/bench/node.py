"""A gliad of its own for a measurement: started, asked, its tiers emptied, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from glia.client import Client
from glia.local import messages as m

_GLIAD = (sys.executable, "-m", "daemon")
_STOP_TIMEOUT_S = 30
_OFFLINE = "[network]\nenabled = false\n"


class Node:
    """One running gliad under a data dir of its own; offline unless its settings have [network].

    Args: before: words that the command is begun with, as to run it on another host.
    """

    def __init__(self, data_dir: Path, settings: str = "", before: Sequence[str] = ()) -> None:
        self.data_dir, self._before = data_dir, before
        self._config = data_dir.parent / f"{data_dir.name}.toml"
        network = "" if "[network]" in settings else _OFFLINE
        self._config.write_text(settings + network, encoding="utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; returns when it is ready."""
        self.verb("start", "--config", str(self._config))

    def stop(self) -> None:
        """Stop it; returns when it is gone."""
        self.verb("stop")

    def client(self) -> Client:
        """A connection to it."""
        return Client.connect(self.data_dir)

    def run(
        self,
        model: str,
        tokens: Sequence[int],
        *,
        max_tokens: int = 1,
        dtype: str | None = None,
        ignore_eos: bool = True,
    ) -> m.Generated:
        """One greedy answer."""
        with self.client() as client:
            *_, last = client.generate(
                model, tokens, max_tokens=max_tokens, dtype=dtype, ignore_eos=ignore_eos
            )
        if not isinstance(last, m.Generated):
            raise RuntimeError(f"gliad ended with {last!r}")
        return last

    def evict(self, *tiers: str) -> None:
        """Empty tiers, in order."""
        with self.client() as client:
            for tier in tiers:
                client.evict(tier)

    def drop_page_cache(self) -> None:
        """Make the kernel forget what it holds of the store's files."""
        for path in (self.data_dir / "store").rglob("*"):
            if path.is_file():
                with _opened(path) as fd:
                    os.fsync(fd)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def kill(self) -> None:
        """SIGKILL, if it was started and runs; returns when it is gone."""
        pid = int((self.data_dir / "gliad.lock").read_text())
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/fd/0").exists():
            time.sleep(0.01)

    def verb(self, *args: str) -> None:
        """Say one of gliad's verbs. Raises: RuntimeError, where that fails."""
        done = subprocess.run(
            [*self._before, *_GLIAD, *args, "--data-dir", str(self.data_dir)],
            check=False,
            capture_output=True,
            text=True,
            timeout=_STOP_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"gliad {args[0]}: {done.stderr}")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process without shared memory (RssAnon + RssFile)."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))
