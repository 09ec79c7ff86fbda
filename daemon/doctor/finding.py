"""A finding: what was looked at, how it is, and what to change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from daemon.config import Config
from daemon.paths import Paths
from glia.local.messages import StatusReply

Verdict = Literal["ok", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        found: how it is, in one line.
        change: what to do about it, "" where nothing need be done.
    """

    name: str
    verdict: Verdict
    found: str
    change: str = ""


@dataclass(frozen=True)
class Subject:
    """The node that is looked at.

    Attributes:
        status: what a running gliad says, None where none runs.
    """

    config: Config
    paths: Paths
    status: StatusReply | None

    @property
    def directory(self) -> Path:
        """The data dir, or what it would be made in."""
        path = self.paths.data_dir
        return next(parent for parent in (path, *path.parents) if parent.is_dir())


Look = Callable[[Subject], Iterator[Finding]]


def examine(name: str, look: Look, subject: Subject) -> list[Finding]:
    """The findings of one look; that it could not look is one, too."""
    findings: list[Finding] = []
    try:
        findings.extend(look(subject))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        findings.append(Finding(name, "bad", f"cannot be looked at: {what}", "gliad.log may tell"))
    return findings
