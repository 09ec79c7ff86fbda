"""What L2 opens, seals and finds the windows of groups with.

A group's epochs are what its members share. What this node alone may read, as it stands behind
what the group may, is sealed under a key that nobody else has. See spec/19-encrypted-window.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from glia.graph.group import Epoch, GroupId
from glia.graph.ids import derive

_OWN_EPOCH = "glia 2026 v1 own epoch"

EpochsOf = Callable[[], Sequence[tuple[GroupId, Sequence[Epoch]]]]  # of each group, the newest last


@dataclass(frozen=True)
class Opens:
    """What a ciphertext is opened with. Attributes: is_own: none of the group's epochs."""

    group: GroupId
    epoch: Epoch
    is_own: bool


@dataclass(frozen=True)
class Keyring:
    """Of one node. For any thread.

    Args:
        epochs: of the groups that it is in now.
        secret: 32 bytes that never leave it; asked for when they are needed first.
    """

    epochs: EpochsOf
    secret: Callable[[], bytes] = field(repr=False)
    _own: dict[GroupId, Epoch] = field(default_factory=dict, repr=False)
    _made: dict[GroupId, tuple[Sequence[Epoch], list[Opens]]] = field(
        default_factory=dict, repr=False
    )

    @property
    def is_empty(self) -> bool:
        """Whether this node is in no group, so that nothing can be opened."""
        return not self.epochs()

    def newest(self, group: GroupId) -> Epoch | None:
        """What members are given is sealed under it; None where this node is not in the group."""
        return next((epochs[-1] for each, epochs in self.epochs() if each == group), None)

    def own(self, group: GroupId) -> Epoch:
        """What stands behind a group's windows, and is nobody's, is sealed under it."""
        known = self._own.get(group)
        if known is None:
            known = self._own[group] = Epoch(1, derive(_OWN_EPOCH, self.secret() + group))
        return known

    def all(self) -> Iterator[Opens]:
        """What opens, the newest of each group first, its own last."""
        for group, epochs in self.epochs():
            yield from self._opens(group, epochs)

    def of_group(self, group: GroupId) -> list[Opens]:
        """The same of one group."""
        return [each for each in self.all() if each.group == group]

    def _opens(self, group: GroupId, epochs: Sequence[Epoch]) -> list[Opens]:
        """Made once, as it is asked for with every window that is not found."""
        known = self._made.get(group)
        if known is None or known[0] is not epochs:
            opens = [Opens(group, epoch, is_own=False) for epoch in reversed(epochs)]
            known = self._made[group] = epochs, [*opens, Opens(group, self.own(group), is_own=True)]
        return known[1]

    def opening(self, epoch_id: bytes) -> Opens | None:
        """What opens a ciphertext of this epoch."""
        return next((each for each in self.all() if each.epoch.epoch_id == epoch_id), None)
