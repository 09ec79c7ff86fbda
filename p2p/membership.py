"""What a member asks in its group with, and what it has learned of the ciphertexts there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from glia.errors import HashMismatch, NotFound
from glia.graph.encrypted import EncryptedWindow, alias_of, decrypt_window
from glia.graph.group import Epoch, GroupId
from glia.graph.ids import BlockId, PrefixKey, WindowId, short
from glia.graph.window import WindowRecord
from p2p.host import PeerId


@dataclass(frozen=True)
class Membership:
    """Of one group, at one moment.

    Attributes:
        epochs: the newest last; at least one.
        capability: what is shown to whoever is asked.
    """

    group: GroupId
    epochs: Sequence[Epoch] = field(repr=False)
    capability: bytes

    def aliases(self, name: bytes) -> Iterator[PrefixKey]:
        """What a prefix key, or a window's name, is asked for as; of the newest epoch first."""
        return (alias_of(epoch, name) for epoch in reversed(self.epochs))

    def epoch_of(self, window: EncryptedWindow) -> Epoch:
        """Raises: NotFound where it is none of those that are known here."""
        for epoch in self.epochs:
            if epoch.epoch_id == window.epoch_id:
                return epoch
        raise NotFound(f"encrypted window {short(window.window_id)} is of an unknown epoch")

    def opened(self, window: EncryptedWindow) -> WindowRecord:
        """The record in a window whose bytes are the named ones.

        Raises: NotFound where it cannot be opened, which is not its carrier's fault;
            MalformedParticle.
        """
        try:
            return decrypt_window(self.epoch_of(window), window)
        except HashMismatch as error:
            raise NotFound(error.message) from error


@dataclass(frozen=True, slots=True)
class Sealed:
    """A block as it travels."""

    name: BlockId
    size_bytes: int
    epoch: Epoch


class Ciphertexts:
    """Which encrypted windows stand for which windows, as peers gave them: of one search.

    What one peer says counts for what another is asked only where that one said nothing.
    """

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self._names: dict[tuple[PeerId, WindowId], WindowId] = {}
        self._blocks: dict[PeerId, dict[BlockId, tuple[EncryptedWindow, int]]] = {}

    def name_of(self, peer: PeerId, window_id: WindowId) -> WindowId | None:
        """What a peer calls a window."""
        return self._names.get((peer, window_id))

    def called(self, peer: PeerId, window_id: WindowId, name: WindowId) -> None:
        """A peer named a window so."""
        self._names[peer, window_id] = name

    def learn(self, peer: PeerId, window: EncryptedWindow, record: WindowRecord) -> None:
        """A peer sent a window."""
        self.called(peer, record.window_id, window.window_id)
        blocks = self._blocks.setdefault(peer, {})
        blocks |= {name: (window, layer) for layer, name in enumerate(record.blocks)}

    def block(self, peer: PeerId, first: PeerId, block_id: BlockId) -> Sealed | None:
        """What to ask a peer for; None where nobody said.

        Args: first: whose chain it is.
        """
        for each in (peer, first):
            found = self._blocks.get(each, {}).get(block_id)
            if found is not None:
                window, layer = found
                epoch = self.membership.epoch_of(window)
                return Sealed(window.blocks[layer], window.sealed_bytes, epoch)
        return None
