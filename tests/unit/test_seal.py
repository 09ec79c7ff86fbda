"""Names are of the copy in the arena, whatever a client does to its staging meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from blake3 import blake3

from daemon.binding import Binding
from daemon.seal import Anchor, seal_windows
from tests.builders import CLASS, MODEL, TINY, make_tokens

BINDING = Binding(MODEL, TINY, CLASS)


@dataclass
class Restless:
    """Staging that its client writes without end: every look at it finds other bytes."""

    length: int
    num_looks: int = 0

    def __getitem__(self, part: slice) -> Any:
        start, stop, _ = part.indices(self.length)
        if stop - start > max(TINY.payload_sizes):
            return self
        self.num_looks += 1
        return bytes([self.num_looks]) * (stop - start)


def test_what_is_hashed_is_the_copy_and_staging_is_looked_at_once() -> None:
    size = TINY.window_particle_bytes
    arena = memoryview(bytearray(2 * size))
    anchor = Anchor(BINDING.root, BINDING.root_blocks, BINDING.root_key, 0)
    staging = Restless(2 * TINY.window_payload_bytes)
    tokens = make_tokens(2 * TINY.block_size)
    offsets = [size, 0]
    sealed = seal_windows(BINDING, anchor, tokens, cast(memoryview, staging), arena, offsets)
    assert staging.num_looks == 2 * len(TINY.layers)
    for window, offset in zip(sealed, offsets, strict=True):
        for block_id, num in zip(window.record.blocks, TINY.particle_sizes, strict=True):
            assert blake3(arena[offset : offset + num]).digest() == block_id
            offset += num
