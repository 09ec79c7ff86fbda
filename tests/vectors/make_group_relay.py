"""Writes group_relay.json: `python -m tests.vectors.make_group_relay`. Frozen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glia.graph.encrypted import alias_of
from p2p.group_relay import FIRST, GetRows, GetTips, Row, RowLink, Rows, Tips
from tests.vectors.make_encrypted import EPOCH, WINDOWS
from tests.vectors.make_exchange import frame_of, name
from tests.vectors.make_group_exchange import SEALED_LINK

FILE = Path(__file__).with_name("group_relay.json")
TIP = WINDOWS[-1].window
BASE = WINDOWS[0].window.prev
ROWS = Rows(
    tuple(
        Row(
            num_windows=2 + at,
            hold_until_s=1_800_000_000,
            alias=alias_of(EPOCH, name(at)),
            encoding=each.window.encoding,
            links=(RowLink(1, BASE, SEALED_LINK),),
        )
        for at, each in reversed(list(enumerate(WINDOWS)))
    )
)


def build() -> dict[str, Any]:
    """The file's content."""
    one = ROWS.rows[0]
    return {
        "_comment": "frames: as they travel, questions and their answers.",
        "tip": TIP.window_id.hex(),
        "frames": {
            "get tips": frame_of(GetTips(FIRST)).hex(),
            "tips": frame_of(Tips((TIP.window_id,))).hex(),
            "tips, and more": frame_of(Tips((TIP.window_id,), name(9))).hex(),
            "get rows": frame_of(GetRows(TIP.window_id)).hex(),
            "rows": frame_of(ROWS).hex(),
            "no rows": frame_of(Rows(())).hex(),
        },
        "refused questions": {
            "a short name": frame_of(GetRows(TIP.window_id[:31])).hex(),
            "an answer": frame_of(Tips(())).hex(),
        },
        "refused rows": {
            "no window before it": frame_of(Rows((_with(one, num_windows=0),))).hex(),
            "a short alias": frame_of(Rows((_with(one, alias=one.alias[:31]),))).hex(),
            "no encoding": frame_of(Rows((_with(one, encoding=b""),))).hex(),
            "nine links": frame_of(Rows((_with(one, links=one.links * 9),))).hex(),
        },
    }


def _with(row: Row, **changes: Any) -> Row:
    fields = {field: getattr(row, field) for field in row.__struct_fields__}
    return Row(**(fields | changes))


if __name__ == "__main__":
    FILE.write_text(json.dumps(build(), indent=1) + "\n")
