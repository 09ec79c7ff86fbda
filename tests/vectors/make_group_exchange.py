"""Writes group_exchange.json: `python -m tests.vectors.make_group_exchange`. Frozen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glia.graph.encrypted import alias_of
from glia.graph.ids import ID_BYTES
from glia.graph.sealed_link import seal_link
from p2p.frames import encode_frame
from p2p.messages import Find, GetRecords, encode
from p2p.showing import Show
from tests.vectors.make_encrypted import EPOCH, WINDOWS
from tests.vectors.make_exchange import frame_of, name
from tests.vectors.make_group import GROUP
from tests.vectors.make_link import links

FILE = Path(__file__).with_name("group_exchange.json")
NOBODY = bytes(ID_BYTES)
SHOWN = Show(GROUP, b"a capability, as it is encoded")
LINK = links()[0]
SEALED_LINK = seal_link(EPOCH, LINK)


def build() -> dict[str, Any]:
    """The file's content."""
    alias = alias_of(EPOCH, name(3))
    tip = WINDOWS[-1].window
    return {
        "_comment": "frames: as they travel, in the order in which a member sends them.",
        "epoch": EPOCH.key.hex(),
        "group": GROUP.hex(),
        "capability": SHOWN.capability.hex(),
        "prefix_key": name(3).hex(),
        "frames": {
            "show": frame_of(SHOWN).hex(),
            "find": frame_of(Find(NOBODY, NOBODY, ((16, alias),))).hex(),
            "records by name": frame_of(GetRecords(tip.window_id, 3, 1)).hex(),
            "records by alias": frame_of(GetRecords(tip.alias, 3, 1)).hex(),
        },
        "link": {"sealed": SEALED_LINK.hex(), "encoding": LINK.encoding.hex()},
        "refused": {
            "a short group": encode_frame(encode(Show(GROUP[:31], b"c"))).hex(),
            "no capability": encode_frame(encode(Show(GROUP, b""))).hex(),
            "a long capability": encode_frame(encode(Show(GROUP, bytes(2049)))).hex(),
            "a question": frame_of(Find(NOBODY, NOBODY, ((16, alias),))).hex(),
        },
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(build(), indent=1) + "\n")
