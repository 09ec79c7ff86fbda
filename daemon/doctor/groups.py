"""Groups: whether what this node may is good still, and whether it may serve others."""

from __future__ import annotations

import time
from collections.abc import Iterator

from daemon.doctor.finding import Finding, Subject
from glia.graph.revoked import STALE_S
from glia.local.group_values import GroupValue


def look(subject: Subject) -> Iterator[Finding]:
    """What a running gliad says of them."""
    if subject.status is not None:
        now_s = time.time()
        for group in subject.status.groups:
            yield _group(group, now_s)


def _group(group: GroupValue, now_s: float) -> Finding:
    name, home = f"group {group.name}", next(iter(group.homes), "GRANT")
    change = f"see that whoever granted it can be reached, or gliad group join {home}"
    if group.expires_s is not None and group.expires_s <= now_s:
        return Finding(name, "warn", "this node may nothing there any more", change)
    if now_s - group.list_s > STALE_S:
        found = "who was revoked is not known for a day: this node serves nobody there"
        return Finding(name, "warn", found, change)
    return Finding(name, "ok", f"{group.role}, epoch {group.epoch}" if group.epoch else group.role)
