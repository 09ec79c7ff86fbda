"""Which values the directory takes: links, under the prefix key of what they attest."""

from __future__ import annotations

from glia.errors import MalformedParticle
from glia.graph.link import parse_link


def is_value(key: bytes, value: bytes) -> bool:
    """Whether `value` is a link, signed, that belongs under `key`."""
    try:
        link = parse_link(value)
    except MalformedParticle:
        return False
    return link.claim.prefix_key == key
