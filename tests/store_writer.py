"""A process that puts windows and says so: `python -m tests.store_writer PATH SEED`.

Prints one line for each put that returned: the numbers of the windows it held.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from glia.store.disk import DiskStore
from tests.builders import WIDE, Chain, make_chain
from tests.store_parts import MIB, sealed

NUM_WINDOWS = 48
SEGMENT_BYTES = 2 * MIB


def chain_of(seed: int) -> Chain:
    """What the process of this seed puts; 64 KiB blocks."""
    return make_chain(NUM_WINDOWS, profile=WIDE, seed=seed)


def main() -> None:
    path, seed = Path(sys.argv[1]), int(sys.argv[2])
    windows = sealed(chain_of(seed))
    rng = random.Random(seed)
    store = DiskStore(path, 4096 * MIB, SEGMENT_BYTES)
    done = 0
    while done < len(windows):
        stop = min(len(windows), done + rng.randint(1, 5))
        store.put(windows[done:stop])
        print(*range(done, stop), flush=True)
        done = stop
    sys.stdin.read()  # to be killed, like all others


if __name__ == "__main__":
    main()
