"""Files of conversations that were damaged and set aside: NAME.bad, then NAME.bad2 and so on."""

from __future__ import annotations

import os
import re
import stat
from itertools import count
from pathlib import Path

from glia.graph.conversation import is_name

_BAD = re.compile(r"\.bad\d*")


def files_aside(directory: Path) -> list[Path]:
    """Those in a directory; their stems are the conversations' names. Raises: OSError."""
    return [
        path
        for path in sorted(directory.iterdir())
        if _BAD.fullmatch(path.suffix) and is_name(path.stem) and stat.S_ISREG(path.lstat().st_mode)
    ]


def next_aside(path: Path) -> Path:
    """Where the next one of a conversation's goes. Args: path: its file."""
    paths = (path.with_suffix(f".bad{number}" if number > 1 else ".bad") for number in count(1))
    return next(bad for bad in paths if not os.path.lexists(bad))
