"""python -m glia.engine: an engine process, started by gliad."""

from __future__ import annotations

import os
import sys

from glia.allocator import limit_heap

_LARGE_BYTES = 8 * 1024 * 1024  # below it are most buffers of a step, which come again and again


def prepare() -> None:
    """Set what libraries read when torch is first imported."""
    # Waiting threads that spin turn two engines on two cores from 40 s into 10 min.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # oneDNN compiles a kernel for each shape, 0.4 to 3 MB of code, and keeps the last 1,024
    # in either of two caches: prompts of 260 lengths took 600 MB. A step needs some 30.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "128")


def _main() -> int:
    prepare()
    limit_heap(_LARGE_BYTES)
    from glia.engine.worker import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
