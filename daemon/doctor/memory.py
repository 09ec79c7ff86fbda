"""Memory for the tiers and the engines, and the limits of this process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from daemon.config_readers import MIB
from daemon.doctor.finding import Finding, Subject, Verdict
from daemon.machine import meminfo_bytes, memory_bytes
from daemon.show import size

_ENOUGH_FILES, _FEW_FILES = 4096, 256
_RUNTIME_BYTES = 512 * MIB  # an engine before its model


def look(subject: Subject) -> Iterator[Finding]:
    """What there is against what the settings allow to be taken."""
    yield _budget(subject)
    if subject.status is None:
        yield _available(subject)
    yield _arena(subject)
    yield _files()
    yield _file_size(subject)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    yield Finding("RLIMIT_MEMLOCK", "ok", f"{_limit(soft)}; gliad locks nothing")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        change = "ulimit -v unlimited: mapped memory counts here"
        yield Finding("RLIMIT_AS", "warn", size(soft), change)


def _engines_bytes(subject: Subject) -> int:
    return subject.config.engine.memory_bytes or memory_bytes() * 3 // 4


def _budget(subject: Subject) -> Finding:
    """The most that all of it may take, against the machine's or the container's memory."""
    total, engines = memory_bytes(), _engines_bytes(subject)
    l1, l0 = subject.config.l1.size_bytes, subject.config.l0.size_bytes
    found = f"L1 {size(l1)} and engines {size(engines)} of {size(total)}"
    if l0 + _RUNTIME_BYTES > engines:
        found = f"an engine needs {size(l0 + _RUNTIME_BYTES)} and more, {size(engines)} is allowed"
        return Finding("memory", "bad", found, "raise [engine] memory, or lower [l0] size")
    if l1 + engines > total:
        return Finding("memory", "warn", found, "lower [l1] size or [engine] memory")
    return Finding("memory", "ok", found)


def _available(subject: Subject) -> Finding:
    """What is free now, against what L1 and one engine without its model take."""
    config, available = subject.config, min(meminfo_bytes("MemAvailable"), memory_bytes())
    least = config.l1.prefault_bytes + _RUNTIME_BYTES
    most = config.l1.size_bytes + config.l0.size_bytes + _RUNTIME_BYTES
    found = f"{size(available)}; L1, L0 and an engine take up to {size(most)} beside the model"
    change = "end other programs, or lower [l0] size and [l1] size"
    if available < least:
        return Finding("free memory", "bad", found, change)
    return Finding("free memory", "ok" if available >= most else "warn", found, change)


def _arena(subject: Subject) -> Finding:
    """L1 is a memory file of its full size, filled as it is used."""
    size_bytes = subject.config.l1.size_bytes
    fd = os.memfd_create("gliad doctor")
    try:
        os.ftruncate(fd, size_bytes)
    except OSError as error:
        found = f"a memory file of {size(size_bytes)} cannot be made: {error.strerror}"
        return Finding("L1", "bad", found, "lower [l1] size, or lift the limit (ulimit -f)")
    finally:
        os.close(fd)
    return Finding("L1", "ok", f"a memory file of {size(size_bytes)} can be made")


def _files() -> Finding:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    verdict: Verdict = "ok"
    if most != resource.RLIM_INFINITY:
        verdict = "bad" if most < _FEW_FILES else "warn" if most < _ENOUGH_FILES else "ok"
    change = "" if verdict == "ok" else f"ulimit -Hn {_ENOUGH_FILES}"
    return Finding("RLIMIT_NOFILE", verdict, _limit(most), change)


def _file_size(subject: Subject) -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(subject.config.l2.segment_bytes, subject.config.l1.size_bytes)
    if soft == resource.RLIM_INFINITY or soft >= largest:
        return Finding("RLIMIT_FSIZE", "ok", _limit(soft))
    return Finding("RLIMIT_FSIZE", "bad", f"files end at {size(soft)}", "ulimit -f unlimited")


def _limit(number: int) -> str:
    return "none" if number == resource.RLIM_INFINITY else f"{number:,}"
