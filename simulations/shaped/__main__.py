"""`python -m simulations.shaped [--tokens 1024] [--json FILE]`, as root.

A prompt that a peer has, asked for over links of several shapes: what gliad took from it, how
long the engine waited for that, and how the first token compares with computing alone. On each
link one prompt is asked for before the link was measured, and one after.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from glia.local.messages import Generated
from simulations.shaped.hosts import CannotShape
from simulations.shaped.shape import Shape
from simulations.shaped.world import World, answer, new_world

_MBIT = 1e6 / 8
_ROW = "{:>7} {:>6} {:>6} {:>9} {:>11} {:>10} {:>12} {:>7}"
SHAPES = (
    Shape(rate=10 * _MBIT, delay_s=0.02, loss=0.01),
    Shape(rate=30 * _MBIT, delay_s=0.02),
    Shape(rate=100 * _MBIT, delay_s=0.01),
    Shape(rate=100 * _MBIT, delay_s=0.01, loss=0.001),
    Shape(rate=200 * _MBIT, delay_s=0.005),
    Shape(),
)


@dataclass(frozen=True)
class Row:
    """What came of one prompt.

    Attributes:
        waited_ms: how long the engine did not begin.
        ratio: time to the first token / that of a prompt computed alone.
    """

    shape: Shape
    is_measured: bool
    num_from_peers: int
    waited_ms: float
    first_ms: float
    ratio: float


def row_of(shape: Shape, found: Generated, alone: Generated, *, is_measured: bool) -> Row:
    """Args: alone: of a prompt as long."""
    waited_ms = found.timings_ms.get("find", 0.0) + found.timings_ms.get("fetch", 0.0)
    first_ms, alone_ms = (each.ttft_ms - each.timings_ms["load"] for each in (found, alone))
    peers = found.usage.cached.peers
    return Row(shape, is_measured, peers, waited_ms, first_ms, first_ms / alone_ms)


def measure(world: World, num_tokens: int) -> list[Row]:
    """Raises: RuntimeError, where an answer is not that of a cold run."""
    rows = []
    for number, shape in enumerate(SHAPES):
        alone = answer(world.asker.data_dir, 1000 + number, num_tokens, "private")
        world.hosts.shape(shape)
        world.meet()
        for seed in (2 * number, 2 * number + 1):
            found = answer(world.asker.data_dir, seed, num_tokens)
            if found.tokens != world.cold[seed].tokens:
                raise RuntimeError(f"another answer than that of a cold run: {found}")
            rows.append(row_of(shape, found, alone, is_measured=bool(seed % 2)))
    return rows


def as_line(row: Row) -> str:
    shape = row.shape
    rate = f"{shape.rate / _MBIT:.0f}" if shape.rate else "any"
    return _ROW.format(
        rate, f"{1000 * shape.delay_s:.0f}", f"{100 * shape.loss:.1f}",
        "yes" if row.is_measured else "no", row.num_from_peers, f"{row.waited_ms:.0f}",
        f"{row.first_ms:.0f}", f"{row.ratio:.2f}",
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m simulations.shaped", description=__doc__)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows here")
    args = parser.parse_args(argv)
    try:
        with new_world(range(2 * len(SHAPES)), args.tokens) as world:
            rows = measure(world, args.tokens)
    except CannotShape as error:
        print(error, file=sys.stderr)
        return 1
    print(f"prompts of {args.tokens} tokens")
    names = ("Mbit/s", "ms", "loss %", "measured", "from peers", "waited ms", "1st token ms")
    print(_ROW.format(*names, "/ alone"))
    for row in rows:
        print(as_line(row))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
