"""python -m glia.engine: an engine process, started by gliad."""

from __future__ import annotations

import os
import sys


def _main() -> int:
    # OpenMP reads this when torch is first imported. Waiting threads that spin turn two
    # engines on two cores from 40 s into 10 min.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from glia.engine.worker import main

    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
