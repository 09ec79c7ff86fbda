"""Writes exchange.json: `python -m tests.vectors.make_exchange`. Frozen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glia.graph.cid import cid_bytes
from p2p.frames import LENGTH, encode_frame
from p2p.messages import (
    Find,
    FoundChain,
    FoundChains,
    GetBlocks,
    GetRecords,
    Have,
    Held,
    Links,
    Message,
    NextBlocks,
    RecordPart,
    encode,
)

FILE = Path(__file__).with_name("exchange.json")


def name(number: int) -> bytes:
    """A name of one byte, 32 times."""
    return bytes([number]) * 32


def frame_of(message: Message) -> bytes:
    """As it travels."""
    return encode_frame(encode(message))


def particle_request(particle_name: bytes) -> bytes:
    """As it travels."""
    return encode_frame(cid_bytes(particle_name))


MESSAGES: dict[str, Message] = {
    "find": Find(name(1), name(2), ((16, name(3)), (262_144, name(4))), ("native:x",), True),
    "find anything": Find(name(1), name(2), ((1, name(3)),)),
    "get records": GetRecords(name(5), 300, 20),
    "next blocks": NextBlocks(name(6)),
    "found none": FoundChains(()),
    "found": FoundChains(
        (
            FoundChain(70_000, name(7), "canonical", (b"link one", b"link two")),
            FoundChain(16, name(8), "native:x", ()),
        )
    ),
    "part": RecordPart((b"the newest" * 30, b"the one before"), False),
    "last part": RecordPart((), True),
    "links": Links((bytes(288),)),
    "get blocks": GetBlocks((name(9), name(10))),
    "have": Have((name(7),)),
    "held": Held(bytes([0b0000_0101, 0b1000_0000])),
}
_LATER = bytes.fromhex("93a44861766591c420") + name(7) + b"\x2a"  # with an element more


def build() -> dict[str, Any]:
    """The file's content."""
    return {
        "_comment": "frames: as they travel. later: of a later revision, read as `have`.",
        "frames": {key: frame_of(message).hex() for key, message in MESSAGES.items()},
        "later": encode_frame(_LATER).hex(),
        "refused": {
            "empty": LENGTH.pack(0).hex(),
            "too long": LENGTH.pack(65_537).hex(),
            "no array": encode_frame(b"\xa4Have").hex(),
            "no ids": encode_frame(b"\x92\xa4Have\x90").hex(),
            "a short id": encode_frame(b"\x92\xa4Have\x91\xc4\x01\x07").hex(),
            "text for an id": encode_frame(b"\x92\xa4Have\x91\xd9\x20" + b"x" * 32).hex(),
            "unknown": encode_frame(b"\x92\xa4Hava\x91\xc4\x20" + name(7)).hex(),
            "bytes behind": (encode_frame(encode(Have((name(7),))) + b"\x00")).hex(),
        },
        "particle": {
            "request": particle_request(name(7)).hex(),
            "answer": (LENGTH.pack(5) + b"bytes").hex(),
            "absent": LENGTH.pack(0).hex(),
        },
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(build(), indent=1) + "\n")
