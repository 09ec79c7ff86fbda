"""Which values the directory takes: links, under the prefix key of what they attest."""

from __future__ import annotations

import time
from collections.abc import Iterable

from glia.errors import MalformedParticle
from glia.graph.link import accept_link
from p2p.claims import Draw

MAX_VALUES = 32  # under one key
MAX_VALUES_BYTES = 32 * 1024  # of these together


def is_value(key: bytes, value: bytes) -> bool:
    """Whether `value` is a link, signed, not in the future, that belongs under `key`."""
    try:
        link = accept_link(value, time.time())
    except MalformedParticle:
        return False
    return link.claim.prefix_key == key


def kept_values(draw: Draw, key: bytes, values: Iterable[bytes]) -> list[bytes]:
    """Of these values of a key those that are kept: whoever came first or last, by lot."""
    kept = draw.kept(key, values, MAX_VALUES)
    while sum(map(len, kept)) > MAX_VALUES_BYTES:
        kept = draw.kept(key, kept, len(kept) - 1)
    return kept
