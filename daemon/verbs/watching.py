"""--watch: something again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from daemon import show

_REFRESH_S = 1.0
_CLEAR = "\x1b[H\x1b[2J"


def watch(ask: Callable[[], Any], draw: Callable[[Any], None], *, as_json: bool) -> int:
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
