"""Which anonymous conversations are to be forgotten by themselves."""

from __future__ import annotations

from collections.abc import Mapping

from daemon.config import ConversationsConfig
from daemon.mending import Kept

SECOND_US = 1_000_000
_HOUR_S = 3600.0
_MAX_BYTES = 2**30  # of their files together


def expires_s(kept: Kept, settings: ConversationsConfig) -> float:
    """When one expires if it is not used again, in seconds since 1970."""
    return kept.head.used_us / SECOND_US + _HOUR_S * settings.anonymous_hours


def expired(
    anonymous: Mapping[str, Kept], settings: ConversationsConfig, now_s: float
) -> list[str]:
    """Those that are too old, or too many; oldest first."""
    names = sorted(anonymous, key=lambda name: anonymous[name].head.used_us)
    num_bytes = sum(kept.size_bytes for kept in anonymous.values())
    found: list[str] = []
    for name in names:
        kept = anonymous[name]
        is_one_too_many = len(names) - len(found) > settings.max_anonymous or num_bytes > _MAX_BYTES
        if expires_s(kept, settings) > now_s and not is_one_too_many:
            break
        found.append(name)
        num_bytes -= kept.size_bytes
    return found
