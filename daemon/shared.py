"""What groups are shown of this node: which of it goes when windows, or a group, are no more.

Blocking; for any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from daemon.attachments import Layout
from daemon.domains import Domains, Groups, epochs_of
from daemon.reach import keys_ever
from glia.graph.conversation import Turn
from glia.graph.encrypted import alias_of
from glia.graph.group import Epoch, GroupId
from glia.graph.ids import ModelId, WindowId
from glia.store.disk import DiskStore
from glia.store.group_index import GroupIndex
from glia.store.vault import Vault


@dataclass(frozen=True)
class Shared:
    """The index, and what it is made from.

    Attributes:
        vault: L2, as the memory has it.
        raw: the same, by the names of ciphertexts.
        groups: those that this node is in.
    """

    vault: Vault
    raw: DiskStore
    index: GroupIndex
    groups: Groups

    def is_here(self, group: GroupId, name: WindowId) -> bool:
        """Whether a window is shown, and whole."""
        is_shown = self.index.window(group, name) is not None
        return is_shown and self.raw.get_record(name) is not None

    def forget(self, window_ids: Sequence[WindowId]) -> None:
        """These are to be here no more: members are shown them no longer.

        Raises: StoreBroken, StoreFull.
        """
        for group, epochs in epochs_of(self.groups):
            self._take_back(group, self.index.named(group, (), _aliases(epochs, window_ids)))

    def take_back(
        self, model_id: ModelId, layouts: Iterable[Layout], turns: Sequence[Turn]
    ) -> tuple[int, int]:
        """Show what a conversation ever said no longer.

        Returns: how many windows of it were shown, and how many of these went.
        Raises: as `forget`.
        """
        if all(turn.group is None for turn in turns):
            return 0, 0
        salted = Domains(self.groups).salted
        keys = keys_ever(model_id, layouts, turns, salted=salted)
        num_shown = num_gone = 0
        for group, epochs in epochs_of(self.groups):
            names = self.index.named(group, _aliases(epochs, keys), ())
            num_shown += len(names)
            num_gone += len(self._take_back(group, names))
        return num_shown, num_gone

    def drop_left(self) -> None:
        """Nothing is shown of groups that this node is not in. Raises: as `forget`."""
        known = {each.group_id for each in self.groups.all()}
        for group in self.index.groups():
            if group not in known:
                self.index.drop(group)

    def _take_back(self, group: GroupId, names: Sequence[WindowId]) -> list[WindowId]:
        return self.index.take_back(group, names) if names else []


def _aliases(epochs: Sequence[Epoch], names: Collection[bytes]) -> list[bytes]:
    return [alias_of(epoch, name) for epoch, name in product(epochs, names)]
