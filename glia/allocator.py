"""The C library's allocator, told to keep less, and to give large buffers back.

glibc gives threads up to 8 arenas a core, and each keeps what its thread once needed: with
worker threads that come and go, some 10 MiB each after hours of work (seen in the soak:
five of them in 20 minutes, the steps in gliad's memory). Two are enough, as Python's own
lock lets one thread at a time allocate for Python.

And it puts buffers of up to 32 MiB among the small ones once one of that size was freed, where
they leave holes (an engine's memory moved by 50 MiB within minutes): with a limit of its own
each large one is mapped, and unmapped when freed.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1  # malloc.h
_MAX_ARENAS = 2


def limit_heap(large_bytes: int) -> bool:
    """Whether the C library has such limits, and took them. Before threads are started.

    Args:
        large_bytes: from this size on a buffer is mapped by itself, which costs the kernel
            about 0.25 us a KiB; twice as much stays at the heap's end when it is free.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library, which has no such arenas
        return False
    limits = {
        _M_ARENA_MAX: _MAX_ARENAS,
        _M_MMAP_THRESHOLD: large_bytes,
        _M_TRIM_THRESHOLD: 2 * large_bytes,
    }
    return all(mallopt(name, value) for name, value in limits.items())
