"""R12: what a node weighs that does nothing: network on, no engine, without shared memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from simulations.bench import bare
from simulations.bench.node import Node, resident_bytes
from simulations.bench.report import Row

_SETTINGS = """[network]
enabled = true
mdns = false
listen = ["/ip4/127.0.0.1/tcp/0"]
"""
_MB = 1e6


def weighed(quick: bool) -> tuple[Row, dict[str, Any]]:
    """Looked at until it is idle; the most that was seen in the second half of that time."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="gliad-bench-idle-") as directory:
        online = _weigh(Path(directory) / "online", _SETTINGS, quick)
        if not quick:
            figures["with the network off, MB"] = _weigh(Path(directory) / "offline", "", quick)
    with bare.serving() as (_, pid):
        other = _most_mb(pid, 1 if quick else 5)
    return Row("R12", online, f"{online:.0f} MB", f"{other:.0f} MB"), figures


def _weigh(data_dir: Path, settings: str, quick: bool) -> float:
    with Node(data_dir, settings) as node:
        while settings and not _is_on(node):
            time.sleep(0.2)
        with node.client() as client:
            pid = client.welcome.pid
        return _most_mb(pid, 3 if quick else 20)


def _is_on(node: Node) -> bool:
    """A node joins the network after it has started."""
    with node.client() as client:
        return bool(client.status().network.addresses)


def _most_mb(pid: int, seconds: int) -> float:
    time.sleep(seconds / 2)
    seen = []
    for _ in range(5):
        time.sleep(seconds / 10)
        seen.append(resident_bytes(pid))
    return max(seen) / _MB
