"""The clock: what a conversation's times and its expiry rest on."""

from __future__ import annotations

import time
from collections.abc import Iterator

from daemon.doctor.finding import Finding, Subject

_FIRST_YEAR = 2025
_LEEWAY_S = 120.0
_CHANGE = "set the clock: timedatectl set-ntp true"


def look(subject: Subject) -> Iterator[Finding]:
    """Whether it is set, and not behind what was written already."""
    now_s = time.time()
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if time.gmtime(now_s).tm_year < _FIRST_YEAR:
        yield Finding("clock", "bad", found, _CHANGE)
        return
    paths = (subject.paths.version, subject.paths.log, subject.paths.store)
    ahead_s = max((path.stat().st_mtime - now_s for path in paths if path.exists()), default=0.0)
    if ahead_s > _LEEWAY_S:
        found += f"; files here are {ahead_s:,.0f} s ahead of it"
        yield Finding("clock", "warn", found, _CHANGE)
        return
    yield Finding("clock", "ok", found)
