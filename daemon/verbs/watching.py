"""What gliad says of itself: once, or with --watch again and again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from daemon import show
from glia.client import Client

_REFRESH_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"


def add_flags(verb: argparse.ArgumentParser) -> None:
    """--watch and --json."""
    verb.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    verb.add_argument("--json", action="store_true", help="with --watch, a line of JSON each time")


def listing(
    args: argparse.Namespace, ask: Callable[[Client], Any], draw: Callable[[Any], None]
) -> int:
    """Draw what `ask` gives, as these flags say."""
    with Client.connect(args.data_dir) as client:
        if args.watch:
            return _watch(lambda: ask(client), draw, as_json=args.json)
        value = ask(client)
    if args.json:
        show.as_json(value)
    else:
        draw(value)
    return 0


def _watch(ask: Callable[[], Any], draw: Callable[[Any], None], *, as_json: bool) -> int:
    """Draw what `ask` gives every second until Ctrl-C; as JSON, a line each time."""
    try:
        while True:
            value = ask()
            if as_json:
                show.json_line(value)
            else:
                show.piece(_CLEAR if sys.stdout.isatty() else "\n")
                draw(value)
                show.flush()
            time.sleep(_REFRESH_S)
    except KeyboardInterrupt:
        return 0
