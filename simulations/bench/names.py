"""hash and verify: what it costs to name bytes, and to hold what a peer sent to its name."""

from __future__ import annotations

import hashlib
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from glia.graph.ids import digest
from p2p.door import expected_blocks, take_block
from simulations.bench.chain import Chain
from simulations.bench.report import Row

_NUM_BLOCKS = 256
_LARGE, _SMALL = 64 * 1024, 12 * 1024
_FOUND = tuple[list[Row], dict[str, Any]]


def hashed(quick: bool) -> _FOUND:
    """BLAKE3 in one thread, against SHA-256 of the same blocks."""
    figures: dict[str, Any] = {}
    reps = 5 if quick else 15
    for size in (_SMALL, _LARGE):
        blocks = [secrets.token_bytes(size) for _ in range(_NUM_BLOCKS)]
        sides = (digest, lambda data: hashlib.sha256(data).digest())
        ours, other = _us_a_block(sides, blocks, reps)
        figures[f"{size // 1024} KiB: BLAKE3, us"] = ours
        figures[f"{size // 1024} KiB: SHA-256, us"] = other
    return [Row("hash", other / ours, _us(ours), _us(other))], figures


def verified(quick: bool) -> _FOUND:
    """A block of a peer at the door: its hash, and its header against the window's record."""
    chain = Chain()
    before, record = chain.windows[:2]
    expected = dict(zip(record.blocks, expected_blocks(record, before, chain.profile), strict=True))
    blocks = [(chain.block(name), expected[name]) for name in record.blocks] * 8

    def derived(_: object) -> object:
        return expected_blocks(record, before, chain.profile)

    door, alone = _us_a_block(
        (lambda pair: take_block(*pair), lambda pair: digest(pair[0])), blocks, 5 if quick else 15
    )
    (window,) = _us_a_block((derived,), range(50), 3)
    ours = door + window / len(record.blocks)
    figures = {"what a window's blocks must be, us a window": window, "the door, us a block": door}
    return [Row("verify", ours / alone, _us(ours), _us(alone))], figures


def _us_a_block(
    sides: Sequence[Callable[[Any], object]], blocks: Sequence[Any], reps: int
) -> list[float]:
    """Medians of CPU microseconds a call, the sides in turn."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(reps):
        for call, found in zip(sides, times, strict=True):
            began_s = time.thread_time()
            for block in blocks:
                call(block)
            found.append((time.thread_time() - began_s) / len(blocks) * 1e6)
    return [statistics.median(found) for found in times]


def _us(value: float) -> str:
    return f"{value:,.1f} us a block"
