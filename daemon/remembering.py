"""What is known of peers and neurons from one run to the next: read once, and written often."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable

import trio

from daemon.network_config import peer_of
from daemon.neuron_file import NeuronFile
from daemon.peer_file import PeerFile
from glia.errors import StoreBroken
from p2p.host import Address
from p2p.ledger import Ledger
from p2p.neurons import Neurons
from p2p.redialling import Redialling

_SAVE_S = 60.0
_REMEMBERED_S = 30 * 86400.0  # where a peer is that only a flag named
_log = logging.getLogger("gliad.peering")


class Remembering:
    """Attributes:
    ledger: what is known of peers.
    kept: the peers that are dialled again and again.
    neurons: what is known of those that sign.
    """

    def __init__(
        self,
        file: PeerFile,
        neuron_file: NeuronFile,
        named: Iterable[str],
        counters: Counter[str],
    ) -> None:
        """Args: named: addresses that the settings name."""
        self._file, self._neuron_file, self._counters = file, neuron_file, counters
        self.ledger, self.kept, self.neurons = Ledger(), Redialling(), Neurons()
        neuron_file.load(self.neurons)
        remembered, addresses = file.load(self.ledger), list(named)
        first = dict.fromkeys(map(peer_of, addresses))
        for peer in (*first, *remembered):  # named ones are kept, however many are remembered
            self.kept.keep(peer, remembered.get(peer, ()))
        for text in addresses:
            self.kept.keep(peer_of(text), [Address(text)])

    async def run(self) -> None:
        """Save what has changed, for ever."""
        while True:
            await trio.sleep(_SAVE_S)
            neurons = self._neuron_file.encode(self.neurons)
            await trio.to_thread.run_sync(self._save, self._content(), neurons)

    def save(self) -> None:
        """Now. Blocking."""
        self._save(self._content(), self._neuron_file.encode(self.neurons))

    async def save_neurons(self) -> None:
        """What was said of neurons, durably. Raises: StoreBroken."""
        content = self._neuron_file.encode(self.neurons)
        await trio.to_thread.run_sync(self._neuron_file.save, content)

    def _content(self) -> bytes:
        """Also of peers that a flag named once, and that were there since: they are dialled."""
        now_s = time.time()
        known = [
            peer
            for peer, entry in self.ledger.entries()
            if entry.trust != "stranger" or now_s - entry.seen_s < _REMEMBERED_S
        ]
        addresses = {peer: kept for peer in known if (kept := self.kept.addresses(peer))}
        return self._file.encode(self.ledger, addresses)

    def _save(self, peers: bytes, neurons: bytes) -> None:
        try:
            self._file.save(peers)
            self._neuron_file.save(neurons)
        except (OSError, StoreBroken) as error:
            self._counters["peers_unsaved"] += 1
            _log.warning("what is known of peers was not saved: %s", error)
