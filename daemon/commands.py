"""Commands in texts for people: each names the node that is meant, so that it can be typed."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from daemon.paths import default_data_dir

VERBS = (
    "audit",
    "chain",
    "chat",
    "check",
    "checkpoint",
    "config",
    "conversations",
    "doctor",
    "evict",
    "export",
    "fetch",
    "forget",
    "fork",
    "gc",
    "grant",
    "group",
    "id",
    "links",
    "models",
    "peers",
    "ps",
    "publish",
    "recall",
    "restore",
    "revoke",
    "run",
    "soul",
    "start",
    "status",
    "stop",
    "trace",
    "trust",
    "unit",
    "verify",
    "wait",
    "where",
)
_PARTS = "add|ban|card|create|export|forget|heed|import|join|leave|list|rotate|show"
_COMMAND = re.compile(
    rf"\bgliad (?:{'|'.join(VERBS)})\b(?: (?:{_PARTS})\b)?+(?! --data-dir| --help)"
)


def addressed(text: str, data_dir: Path) -> str:
    """A text whose commands name the data dir, where they would take another without.

    gliad's own hints go through this, too: it cannot know how it was addressed.
    """
    if data_dir == default_data_dir(os.environ):
        return text
    named = f" --data-dir {shlex.quote(str(data_dir))}"
    return _COMMAND.sub(lambda found: found[0] + named, text)
