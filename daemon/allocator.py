"""The C library's allocator, told to keep less, and to give large buffers back.

glibc gives threads up to 8 arenas a core, and each keeps what its thread once needed: with
worker threads that come and go, some 10 MiB each after hours of work (seen in the soak:
five of them in 20 minutes, the steps in gliad's memory). Two are enough, as Python's own
lock lets one thread at a time allocate for Python.

And it puts buffers of up to 32 MiB among the small ones once one of that size was freed, where
they leave holes: with a limit of its own each large one is mapped, and unmapped when freed.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # malloc.h
_MAX_ARENAS = 2
_LARGE_BYTES = 256 * 1024


def limit_heap() -> bool:
    """Whether the C library has such limits, and took them. Before threads are started."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library, which has no such arenas
        return False
    return bool(mallopt(_M_ARENA_MAX, _MAX_ARENAS) and mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES))
