"""Which values the directory takes: links, under the prefix key of what they attest."""

from __future__ import annotations

import time

from glia.errors import MalformedParticle
from glia.graph.link import accept_link


def is_value(key: bytes, value: bytes) -> bool:
    """Whether `value` is a link, signed, not in the future, that belongs under `key`."""
    try:
        link = accept_link(value, time.time())
    except MalformedParticle:
        return False
    return link.claim.prefix_key == key
