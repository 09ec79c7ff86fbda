"""Publishes conversations until it is killed: `python -m tests.publish_writer DIR`.

Says a line for every link once it is there. Every conversation's tokens follow from its name.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.builders import TINY, Chain, make_chain
from tests.publish_parts import Rig, run_rig, settled
from tests.store_parts import sealed

NAMES = ("a", "b", "c")
STEP = 7  # windows a turn
MOST = 12  # turns


def chain_of(name: str, num_turns: int = MOST) -> Chain:
    return make_chain(num_turns * STEP, seed=ord(name))


def main(directory: Path) -> None:
    rig = Rig(directory)
    for name in NAMES:
        rig.store.put(sealed(chain_of(name)))

    async def body() -> None:
        for number in range(1, MOST + 1):
            for name in NAMES:
                await _grow(rig, name, number)

    run_rig(rig, body)
    print("done", flush=True)


async def _grow(rig: Rig, name: str, number: int) -> None:
    chain = chain_of(name, number)
    has = rig.conversations.head(name).num_turns if name in rig.conversations else 0
    if has < number:
        num = number * STEP * TINY.block_size
        await rig.say(name, chain, num, keep=num - STEP * TINY.block_size)
    await settled(lambda: rig.visible(chain) == len(chain.records))
    for link in rig.links(chain):
        print(link.link_id.hex(), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
