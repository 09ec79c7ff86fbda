"""Writes conversation.json: `python -m tests.vectors.make_conversation`. Frozen.

Four files: a conversation of three turns, the last of which drops the answer before it; a
fork of it; one whose messages have no text, in which nothing is kept as a window; and one that
begins in public and goes on for a group. How its answers were chosen is known of the first and
of the last, as a newer gliad writes it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from glia.graph.conversation import Begin, Message, Origin, Record, Turn, make_turn
from glia.graph.group import GroupId
from glia.graph.ids import WindowId
from glia.graph.journal import begin_file
from glia.graph.privacy import Visibility
from glia.graph.sampling import Sampling
from tests.vectors import make

FILE = Path(__file__).with_name("conversation.json")
PUBLIC, AGGREGATE, PRIVATE = Visibility.PUBLIC, Visibility.AGGREGATE, Visibility.PRIVATE
_US = 1_800_000_000_000_000

_BEGIN = Begin(_US, "talk", "smollm2", "bfloat16", make.MODEL)
_TIPS = [WindowId(make.seed(f"tip {number}", 32)) for number in range(3)]
_LOG = make.tokens_of("log", 40)
_GROUP = GroupId(make.seed("group", 32))
_FIRST = make_turn(
    PUBLIC,
    0,
    _LOG[:18],
    [Message("system", "Be brief.", 1, 8, PUBLIC), Message("user", "Grüße?", 9, 16, AGGREGATE)],
    _LOG[18:24],
    _TIPS[0],
    _US + 1,
    Sampling(0.75, 0.5, 40, 2**63 - 1),
)
_SECOND = make_turn(
    AGGREGATE, 24, _LOG[:34], [Message("user", "", 26, 32, PUBLIC)], _LOG[34:40], _TIPS[1], _US + 2
)
_AGAIN = make_turn(
    AGGREGATE,
    34,
    (*_LOG[:34], 7),
    [Message("", None, 34, 35, PRIVATE)],
    (8, 9),
    None,
    _US + 3,
    Sampling(),
)
_FORKED = Turn(
    _US + 9,
    0,
    _LOG[:20],
    (*_FIRST.messages[:2], replace(_FIRST.messages[2], end=20)),
    _TIPS[0],
)
FILES: dict[str, list[Record]] = {
    "talk": [_BEGIN, _FIRST, _SECOND, _AGAIN],
    "fork": [
        replace(_BEGIN, name="fork.1", created_us=_US + 9),
        Origin("talk", 20),
        _FORKED,
    ],
    "anonymous": [
        replace(_BEGIN, name="@0123abcd"),
        make_turn(PUBLIC, 0, _LOG[:3], [], _LOG[3:5], None, _US),
    ],
    "group": [
        replace(_BEGIN, name="group"),
        make_turn(
            PUBLIC,
            0,
            _LOG[:9],
            [Message("system", None, 1, 5, PUBLIC), Message("user", None, 6, 9, AGGREGATE)],
            _LOG[9:12],
            _TIPS[0],
            _US + 1,
            group=_GROUP,
        ),
        make_turn(
            AGGREGATE,
            12,
            _LOG[:14],
            [Message("user", None, 12, 14, PRIVATE)],
            _LOG[14:15],
            _TIPS[1],
            _US + 2,
            group_before=_GROUP,
        ),
    ],
}


def build() -> dict[str, Any]:
    """The files, in hex."""
    return {
        "_comment": " ".join((__doc__ or "").split("\n\n")[1].split()),
        "files": {name: begin_file(records)[0].hex() for name, records in FILES.items()},
    }


if __name__ == "__main__":
    FILE.write_text(make.render(build()))
