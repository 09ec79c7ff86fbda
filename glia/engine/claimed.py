"""Stored windows as they are claimed, copied out of L1 without being used: for looking at them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glia.engine.memory import TierMemory
from glia.engine.payloads import window_views
from glia.engine.restore import GROUP_WINDOWS
from glia.errors import NotFound
from glia.graph.ids import WindowId, short
from glia.graph.profile import Profile
from glia.kv.dtypes import STORAGE_DTYPES


class ClaimedWindows:
    """Reads them, a few leases at a time."""

    def __init__(self, memory: TierMemory, profile: Profile) -> None:
        self._memory, self._profile = memory, profile
        self._arena = torch.from_numpy(memory.arena)
        room = len(memory.arena) // profile.window_particle_bytes // 5
        self.group = max(1, min(GROUP_WINDOWS, room))  # windows leased at once

    def read(self, names: Sequence[WindowId]) -> list[torch.Tensor]:
        """Copies, per layer [W, S, G, 2 * D]. Raises: NotFound."""
        size = self._profile.block_size
        layers = [
            torch.empty(
                len(names),
                size,
                shape.kv_heads,
                2 * shape.head_dim,
                dtype=STORAGE_DTYPES[self._profile.scheme],
            )
            for shape in self._profile.layers
        ]
        for start in range(0, len(names), self.group):
            some = names[start : start + self.group]
            self._memory.lease_begin(some)
            leased = self._memory.lease_end()
            try:
                if len(leased.tiers) < len(some):
                    raise NotFound(f"window {short(some[len(leased.tiers)])} is here no more")
                for at, offsets in enumerate(leased.offsets.tolist(), start):
                    views = window_views(self._arena, self._profile, offsets, 0, 1)
                    for layer, view in zip(layers, views, strict=True):
                        layer[at] = view[0]
            finally:
                self._memory.release(leased.lease)
        return layers
