"""Versions, and whether the running gliad is the one that is installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from daemon.doctor.finding import Finding, Subject
from daemon.settings import as_text

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BY_FLAGS = ("network.enabled", "network.listen", "network.bootstrap")  # of gliad start
_INSTALL = "make setup, or pip install -r requirements.lock"


def look(subject: Subject) -> Iterator[Finding]:
    """Python, packages by their metadata (none is imported), the process."""
    python = ".".join(map(str, sys.version_info[:3]))
    fits = (3, 11) <= sys.version_info < (3, 13)
    change = "" if fits else "use Python 3.11 or 3.12"
    yield Finding("python", "ok" if fits else "warn", python, change)
    yield from map(_package, ("gliad", *_needed()))
    yield from _process(subject)


def _needed() -> list[str]:
    """What gliad cannot do without: engines, the HTTP door and all else."""
    try:
        asked = requires("gliad") or []
    except PackageNotFoundError:
        return []
    return [found[0] for line in asked if (found := _NAME.match(line)) and "extra ==" not in line]


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", version(name))
    except PackageNotFoundError:
        return Finding(name, "bad", "not installed", _INSTALL)


def _process(subject: Subject) -> Iterator[Finding]:
    status = subject.status
    if status is None:
        yield Finding("gliad runs", "ok", "no: gliad start")
        return
    yield Finding("gliad runs", "ok", f"pid {status.pid}, up {status.uptime_s:,.0f} s")
    try:
        installed = version("gliad")
    except PackageNotFoundError:
        installed = status.version
    if status.version != installed:
        found = f"{status.version} runs, {installed} is installed"
        yield Finding("gliad's version", "warn", found, "gliad stop, then gliad start")
    differing = [
        key
        for key, value in as_text(subject.config).items()
        if key not in _BY_FLAGS and status.settings.get(key, value) != value
    ]
    if differing:
        found = f"it was started with another {', '.join(differing)}"
        yield Finding("gliad's settings", "warn", found, "gliad config shows both")
    for engine in status.engines:
        if engine.error:
            yield Finding(f"engine of {engine.model}", "warn", engine.error, "look at gliad.log")
    for tier, value in status.tiers.items():
        if value.quarantined:
            found = f"{value.quarantined:,} windows were damaged and set aside"
            yield Finding(f"tier {tier}", "warn", found, "gliad check; then look after that disk")
    if status.counters.get("crashed"):
        found = f"{status.counters['crashed']:,} connections crashed"
        yield Finding("gliad's log", "warn", found, "look at gliad.log, and report what is there")
