"""Conversations whose files were damaged."""

from __future__ import annotations

from collections.abc import Iterator

from daemon.aside import files_aside
from daemon.doctor.finding import Finding, Subject

_SHOWN = 5


def look(subject: Subject) -> Iterator[Finding]:
    """Whether files were set aside, as gliad could not read them, or not all of them."""
    directory = subject.paths.conversations
    paths = files_aside(directory) if directory.is_dir() else []
    if not paths:
        yield Finding("conversations", "ok", "none is damaged")
        return
    names = list(dict.fromkeys(path.stem for path in paths))
    shown = " ".join(names[:_SHOWN])
    files = ", ".join(path.name for path in paths[:_SHOWN])
    found = f"{len(paths)} files were damaged and set aside: {files}"
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    change = f"gliad forget {shown} removes them, and what else has these names{more}"
    yield Finding("conversations", "warn", found, change)
