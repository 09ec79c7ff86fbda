"""Windows that others computed, computed again: one at a time, from the windows before it.

What stands before it is taken as it is claimed. So a chain is true, if each of its windows is;
and looking at one costs no more than computing one (DESIGN C13, SECURITY 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

from glia.engine.claimed import ClaimedWindows
from glia.engine.finding import Checks, Finding
from glia.engine.memory import Examined, TierMemory
from glia.engine.restore import Restored
from glia.graph.ids import WindowId
from glia.graph.profile import Profile


class Auditor:
    """Computes windows again."""

    def __init__(self, memory: TierMemory, profile: Profile, examiner: Checks) -> None:
        self._memory, self._profile, self._examiner = memory, profile, examiner
        self._claimed = ClaimedWindows(memory, profile)

    def audit(
        self, chain: Sequence[WindowId], tokens: Sequence[int], *, is_canonical: bool
    ) -> Finding:
        """Compute a window again.

        Args:
            chain: from genesis to this one. tokens: its own.
        Raises: NotFound where a window of the chain cannot be had; PromptError.
        """
        layers = self._claimed.read(chain)
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
