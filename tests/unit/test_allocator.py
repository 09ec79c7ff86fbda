"""Arenas of the C library: as many threads as one likes, two of them at most."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each thread's allocations come from an arena of its own as long as there may be one more;
# `malloc_info` lists those there are.
_PROGRAM = """
import ctypes, os, sys, threading
from glia.allocator import limit_heap
if sys.argv[1] == "limited" and not limit_heap(256 * 1024):
    sys.exit("no such limit")
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
barrier = threading.Barrier(8)
def work():
    barrier.wait()
    libc.malloc(ctypes.c_size_t(1000))
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
libc.fdopen.restype = ctypes.c_void_p
out = libc.fdopen(ctypes.c_int(1), b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fflush(ctypes.c_void_p(out))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_threads_share_two_arenas() -> None:
    assert _num_arenas("limited") <= 2 < _num_arenas("as it is")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_large_buffers_are_given_back_whatever_was_freed_before() -> None:
    assert _resident_after("limited") < 8 < _resident_after("as it is")


# A small object on top of a freed buffer keeps its memory, unless that was mapped by itself.
_HOLE = """
import ctypes, sys
from glia.allocator import limit_heap
if sys.argv[1] == "limited" and not limit_heap(256 * 1024):
    sys.exit("no such limit")
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
size = 16 * 2**20
def resident():
    with open("/proc/self/statm", encoding="ascii") as line:
        return int(line.read().split()[1]) * 4096 / 2**20
before = resident()
libc.free(libc.malloc(ctypes.c_size_t(size)))
large = libc.malloc(ctypes.c_size_t(size))
ctypes.memset(large, 1, size)
small = [libc.malloc(ctypes.c_size_t(1000)) for _ in range(1000)]
libc.free(large)
print(resident() - before)
"""


def _resident_after(how: str) -> float:
    run = subprocess.run(
        [sys.executable, "-c", _HOLE, how], capture_output=True, text=True, check=True
    )
    return float(run.stdout)


def _num_arenas(how: str) -> int:
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True
    )
    return run.stdout.count("<heap nr=")
