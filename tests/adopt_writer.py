"""Takes windows from a peer until it is killed, and says nothing of them: `... DIR SEED`.

It ends before they are offered to others with their links: only what is written before they
are entered says whose they are.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import trio

from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.memory import Memory
from glia.store.disk import DiskStore
from glia.store.published import Published
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain

MIB = 1024 * 1024
NUM_WINDOWS = 24


def chain_of(seed: int) -> Chain:
    return make_chain(NUM_WINDOWS, seed=seed)


async def main(directory: Path, seed: int) -> None:
    arena = SharedMemory("adopt-writer", MIB, 0)
    store = DiskStore(directory / "store", 64 * MIB, MIB)
    published = Published(directory / "published")
    memory = Memory(arena, store, hot_steps=4)
    binding = Binding(MODEL, TINY, CLASS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.writer.run)
        for number in range(seed, seed + 1000):
            chain = chain_of(number)
            expect = partial(published.foreign.expect, chain.window_ids)
            sink = memory.adopter.after(binding, None, binding.root_key, 0, expect)
            print(number, flush=True)
            for record, particles in zip(chain.records, chain.particles, strict=True):
                await sink.take(record, particles)
            if not number % 3:
                await memory.flush(chain.window_ids)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
