"""Windows that others computed, computed again: one at a time, from the windows before it.

What stands before it is taken as it is claimed. So a chain is true, if each of its windows is;
and looking at one costs no more than computing one (DESIGN C13, SECURITY 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glia.engine.finding import Checks, Finding
from glia.engine.memory import Examined, TierMemory
from glia.engine.payloads import window_views
from glia.engine.restore import GROUP_WINDOWS, Restored
from glia.errors import NotFound
from glia.graph.ids import WindowId, short
from glia.graph.profile import Profile
from glia.kv.dtypes import STORAGE_DTYPES


class Auditor:
    """Computes windows again."""

    def __init__(self, memory: TierMemory, profile: Profile, examiner: Checks) -> None:
        self._memory, self._profile, self._examiner = memory, profile, examiner
        self._arena = torch.from_numpy(memory.arena)
        room = len(memory.arena) // profile.window_particle_bytes // 5
        self._group = max(1, min(GROUP_WINDOWS, room))

    def audit(
        self, chain: Sequence[WindowId], tokens: Sequence[int], *, is_canonical: bool
    ) -> Finding:
        """Compute a window again.

        Args:
            chain: from genesis to this one. tokens: its own.
        Raises: NotFound where a window of the chain cannot be had; PromptError.
        """
        layers = self._read(chain)
        before = [layer[:-1] for layer in layers] if len(chain) > 1 else []
        window = [layer[-1] for layer in layers]
        return self._examiner.audit(before, window, tokens, is_canonical=is_canonical)

    def vet(
        self, chain: Sequence[WindowId], start: int, tokens: Sequence[int], restored: Restored
    ) -> int:
        """Tell what came of looking at windows, and compute those again that are asked for.

        Args:
            chain: from genesis on; tokens: theirs, and more.
            restored: windows from `start` on, and others that stood in L0.
        Returns: how many leading windows of the chain may be used, as far as this can say.
        """
        if not restored.examined:
            return len(chain)
        wanted = set(self._memory.examined(restored.examined))
        size = self._profile.block_size
        for index in range(start, len(chain)):
            name = chain[index]
            if name not in wanted:
                continue
            own = tokens[index * size : (index + 1) * size]
            canonical = name in restored.canonical
            finding = self.audit(chain[: index + 1], own, is_canonical=canonical)
            self._memory.examined([Examined(name, finding, is_audit=True)])
            if not finding.is_clean:
                return index
        return len(chain)

    def _read(self, chain: Sequence[WindowId]) -> list[torch.Tensor]:
        """Copies, per layer [W, S, G, 2 * D]. Raises: NotFound."""
        size = self._profile.block_size
        layers = [
            torch.empty(
                len(chain),
                size,
                shape.kv_heads,
                2 * shape.head_dim,
                dtype=STORAGE_DTYPES[self._profile.scheme],
            )
            for shape in self._profile.layers
        ]
        for start in range(0, len(chain), self._group):
            names = chain[start : start + self._group]
            self._memory.lease_begin(names)
            leased = self._memory.lease_end()
            try:
                if len(leased.tiers) < len(names):
                    raise NotFound(f"window {short(names[len(leased.tiers)])} is here no more")
                for at, offsets in enumerate(leased.offsets.tolist(), start):
                    views = window_views(self._arena, self._profile, offsets, 0, 1)
                    for layer, view in zip(layers, views, strict=True):
                        layer[at] = view[0]
            finally:
                self._memory.release(leased.lease)
        return layers
