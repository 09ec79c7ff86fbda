"""The arena's seals and its cap."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from daemon.arena import SharedMemory, available_bytes, make_arena, make_staging
from daemon.staging import StagingAreas
from glia.errors import ConfigError, QuotaExceeded

MIB = 1024 * 1024


def test_an_arena_can_be_read_and_not_written_by_who_has_its_descriptor() -> None:
    arena = make_arena(MIB + 1)
    try:
        assert arena.size_bytes == MIB
        arena.view[5000:5004] = b"glia"
        theirs = os.open(f"/proc/self/fd/{arena.fd}", os.O_RDWR)
        try:
            assert os.pread(theirs, 4, 5000) == b"glia"
            with pytest.raises(PermissionError):
                os.pwrite(theirs, b"evil", 5000)
            for size in (0, 2 * MIB):
                with pytest.raises(PermissionError):
                    os.ftruncate(theirs, size)
            with pytest.raises(PermissionError):
                mmap.mmap(theirs, MIB)
            with mmap.mmap(theirs, MIB, mmap.MAP_PRIVATE) as private:
                private[5000:5004] = b"evil"
            assert arena.view[5000:5004] == b"glia"
        finally:
            os.close(theirs)
    finally:
        arena.close()
        arena.close()


def test_staging_is_written_by_both_and_truncated_by_none() -> None:
    staging = make_staging(MIB)
    try:
        with mmap.mmap(staging.fd, MIB) as theirs:
            theirs[0:4] = b"glia"
            assert staging.view[0:4] == b"glia"
        with pytest.raises(PermissionError):
            os.ftruncate(staging.fd, 0)
    finally:
        staging.close()


def test_prefaulting_gives_pages() -> None:
    memory = SharedMemory("test", 8 * MIB, 0)
    try:
        assert os.fstat(memory.fd).st_blocks == 0
        memory.prefault(3 * MIB)
        assert os.fstat(memory.fd).st_blocks * 512 == 4 * MIB  # in steps of 2 MiB
        memory.prefault(100 * MIB)
        assert os.fstat(memory.fd).st_blocks * 512 == 8 * MIB
    finally:
        memory.close()
    memory.prefault(MIB)


def test_what_does_not_fit_the_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="an arena of") as refused:
        make_arena(2**46)
    assert refused.value.hint == "lower l1.size in glia.toml"


def test_available_memory_is_what_the_kernel_and_the_cgroup_allow(tmp_path: Path) -> None:
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal:  100 kB\nMemAvailable:   64 kB\n")
    assert available_bytes(meminfo, limit) == 64 * 1024
    limit.write_text("max\n")
    assert available_bytes(meminfo, limit) == 64 * 1024
    limit.write_text("4096\n")
    assert available_bytes(meminfo, limit) == 4096


def test_staging_areas_are_bounded_each_and_together() -> None:
    areas = StagingAreas(MIB)
    held = [areas.open(MIB) for _ in range(4)]
    with pytest.raises(QuotaExceeded, match="other clients"):
        areas.open(1)
    areas.close(held.pop())
    held.append(areas.open(4096))
    for size in (0, MIB + 1):
        with pytest.raises(QuotaExceeded, match="1 to"):
            areas.open(size)
    for area in held:
        areas.close(area)
