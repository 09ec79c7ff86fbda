"""start, stop, wait, status, version: the life of a node."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daemon import launch, show
from daemon.commands import addressed
from daemon.config import load_config
from daemon.paths import Paths
from daemon.verbs.arguments import add_config, add_network, network_flags, seconds
from glia.client import Client
from glia.errors import EngineFailed, NotRunning
from glia.local.address import socket_path
from glia.local.messages import StatusReply
from glia.local.network_values import NetworkValue

_POLL_S = 0.05
_FAILED = "gliad runs without it; gliad models shows where it is, and gliad.log says more"
_JOINING = "network: on, it is being joined: gliad status shows how it is"
_FIRST = (
    "network: on. Other nodes can connect to this one{lan}; nothing of what you say is sent to "
    "them unless you make it public. To turn it off: gliad start --offline, or [network] "
    "enabled = false in glia.toml"
)
_MDNS = {"on": "on", "off": "off", "alone": "on, without a LAN"}
_STATUS_FIELDS = tuple(name for name in StatusReply.__struct_fields__ if name != "id")


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    start = verbs.add_parser("start", parents=[common], help="start gliad in the background")
    add_config(start)
    add_network(start)
    start.add_argument(
        "--wait-models", action="store_true", help="return when [engine] preload is loaded"
    )
    start.add_argument("--foreground", action="store_true", help="stay, and log to stderr too")
    start.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="S",
        help="seconds to be ready in (default: 60)",
    )
    start.set_defaults(verb=_start)

    stop = verbs.add_parser("stop", parents=[common], help="stop gliad; returns when it is gone")
    stop.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds (default: 60)"
    )
    stop.set_defaults(verb=_stop)

    wait = verbs.add_parser("wait", parents=[common], help="return when gliad is ready")
    wait.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds (default: 60)"
    )
    wait.set_defaults(verb=_wait)

    status = verbs.add_parser("status", parents=[common], help="tiers, engines, counters")
    status.add_argument("--json", action="store_true")
    status.set_defaults(verb=_status)

    version = verbs.add_parser("version", parents=[common], help="say the version")
    version.set_defaults(verb=_version)


def _start(args: argparse.Namespace) -> int:
    socket_path(args.data_dir)
    config = load_config(args.data_dir, args.config, os.environ)  # a mistake is told here
    flags = network_flags(args)
    network = flags.over(config.network)
    if args.foreground:
        launch.become(args.data_dir, args.config, flags)
    is_first = not Paths(args.data_dir).peer_key.exists()
    pid = launch.start(args.data_dir, args.config, flags, args.timeout)
    with Client.connect(args.data_dir) as client:
        status = client.status()
    http = f", {status.http}" if status.http else ""
    show.note(f"gliad is running: pid {pid}, socket {socket_path(args.data_dir)}{http}")
    if status.network is not None:
        lan = " and find it on this LAN" if network.finds_neighbours else ""
        said = _FIRST.format(lan=lan) if is_first else _JOINING
        show.note(addressed(said, args.data_dir))
    if args.wait_models:
        _until_loaded(args.data_dir, config.engine.preload)
    return 0


def _until_loaded(data_dir: Path, models: Sequence[str]) -> None:
    """Return when these models can be asked. Raises: EngineFailed, when no other is loading."""
    progress = show.ProgressLine()
    with Client.connect(data_dir) as client:
        while True:
            engines = [engine for engine in client.status().engines if engine.model in models]
            loading = [engine for engine in engines if engine.state == "starting"]
            if not loading:
                break
            first = loading[0]
            progress(f"{first.model}: {first.loading or 'starting'}", first.done, first.total)
            time.sleep(_POLL_S)
    progress.clear()
    for engine in engines:
        if engine.error:
            raise EngineFailed(f"{engine.model} was not loaded: {engine.error}", hint=_FAILED)


def _stop(args: argparse.Namespace) -> int:
    pid = launch.stop(args.data_dir, args.timeout)
    show.note(f"gliad has stopped: pid {pid}")
    return 0


def _wait(args: argparse.Namespace) -> int:
    deadline = time.monotonic() + args.timeout
    while True:
        left_s = deadline - time.monotonic()
        try:
            Client.connect(args.data_dir, timeout_s=max(left_s, 0.0)).close()
        except NotRunning:
            if left_s <= 0:
                raise
            time.sleep(_POLL_S)
        else:
            return 0


def _status(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        status = client.status()
    if args.json:
        show.as_json({name: getattr(status, name) for name in _STATUS_FIELDS})
    else:
        _show_status(status)
    return 0


def _show_status(status: StatusReply) -> None:
    show.line(f"gliad {status.version}, pid {status.pid}, up {status.uptime_s:,.0f} s")
    show.line(f"data dir {status.data_dir}")
    show.line(f"socket   {status.socket}")
    show.line(f"network  {_network_line(status.network)}" if status.network else "network  offline")
    show.line(f"http     {status.http}\n" if status.http else "")
    show.table(
        ("TIER", "USED", "CAP", "WINDOWS", "HITS", "MISSES", "EVICTIONS", "QUARANTINED"),
        [
            (
                name,
                show.size(t.used_bytes),
                show.size(t.cap_bytes),
                *(f"{n:,}" for n in (t.windows, t.hits, t.misses, t.evictions, t.quarantined)),
            )
            for name, t in sorted(status.tiers.items())
        ],
    )
    show.line("")
    show.table(
        ("ENGINE", "DTYPE", "STATE", "PID", "MEMORY", "IDLE", "RUNNING", "WAITING", "RESTARTS"),
        [
            (
                e.model,
                e.dtype,
                e.state,
                str(e.pid or "none"),
                show.size(e.memory_bytes),
                show.span(e.idle_s),
                *(str(n) for n in (e.num_running, e.num_waiting, e.num_restarts)),
            )
            for e in status.engines
        ],
    )
    for engine in status.engines:
        if engine.error:
            show.line(f"{engine.model}: {engine.error}")
        elif engine.loading:
            share = f" {100 * engine.done // engine.total}%" if engine.total else ""
            show.line(f"{engine.model}: {engine.loading}{share}")


def _network_line(network: NetworkValue) -> str:
    if network.why_off and not network.peer_id:
        return f"not yet on: {network.why_off}"
    if network.why_off:
        return f"off: {network.why_off}; it is tried again"
    if network.twin:
        return f"another node has this node's peer id: {network.twin}; gliad doctor"
    mdns = _MDNS.get(network.mdns, f"off: {network.mdns}")
    return (
        f"{network.num_connected:,} of {network.num_known:,} known peers connected, "
        f"mDNS {mdns}, at {', '.join(network.addresses) or 'no address'}"
    )


def version_line() -> str:
    """Which gliad this is."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"gliad {importlib.metadata.version('gliad')} (Python {python})"


def _version(_args: argparse.Namespace) -> int:
    show.line(version_line())
    return 0
