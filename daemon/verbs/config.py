"""config: the settings in effect, and where each came from."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.config import load_config
from daemon.settings import as_text, as_value, origins
from daemon.verbs.arguments import add_config
from glia.client import Client
from glia.errors import NotRunning
from glia.local.messages import StatusReply


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    config = verbs.add_parser(
        "config",
        parents=[common],
        help="the settings in effect, and where each came from",
        description="What a gliad that starts now would use. Where one is running, it says "
        "with which other values it was started.",
    )
    add_config(config)
    config.add_argument("--json", action="store_true")
    config.set_defaults(verb=_config)


def _config(args: argparse.Namespace) -> int:
    values = as_text(load_config(args.data_dir, args.config, os.environ))
    found = origins(args.data_dir, args.config, os.environ)
    status = _status(args)
    running = status.settings if status else {}
    differing = [key for key in values if key in running and running[key] != values[key]]
    if args.json:
        show.as_json(
            [
                {
                    "key": key,
                    "value": as_value(value),
                    "origin": found[key],
                    "running": as_value(running[key]) if key in running else None,
                }
                for key, value in values.items()
            ]
        )
    else:
        rows = [(key, value, found[key]) for key, value in values.items()]
        show.table(("SETTING", "VALUE", "FROM"), rows)
    if status is None:
        show.note("no gliad is running here")
    for key in differing:
        show.note(f"the running gliad has another: {key} = {running[key]}")
    if differing:
        show.note(addressed(f"to give it these settings: {_restart(args)}", args.data_dir))
    return 0


def _status(args: argparse.Namespace) -> StatusReply | None:
    try:
        with Client.connect(args.data_dir, timeout_s=1.0) as client:
            return client.status()
    except NotRunning:
        return None


def _restart(args: argparse.Namespace) -> str:
    named = f" --config {shlex.quote(str(args.config))}" if args.config else ""
    return f"gliad stop, then gliad start{named}"
