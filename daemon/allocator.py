"""The C library's allocator, told to keep less.

glibc gives threads up to 8 arenas a core, and each keeps what its thread once needed: with
worker threads that come and go, some 10 MiB each after hours of work (seen in the soak:
five of them in 20 minutes, the steps in gliad's memory). Two are enough, as Python's own
lock lets one thread at a time allocate for Python.
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8  # malloc.h
_MAX_ARENAS = 2


def limit_arenas() -> bool:
    """Whether the C library has such a limit, and took it. Before threads are started."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library, which has no such arenas
        return False
    return bool(mallopt(_M_ARENA_MAX, _MAX_ARENAS))
