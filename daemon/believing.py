"""Whose word counts on this node: as its settings say, and who is connected from where."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daemon.gateways import gateways
from daemon.network_config import NetworkConfig, peer_of
from glia.graph.neuron import NeuronId
from p2p.accepting import STRANGER, Acquaintance, is_near
from p2p.host import Connection, PeerId
from p2p.ledger import Ledger, PeerEntry, Trust
from p2p.neurons import Neurons


class Believing:
    """Asked anew each time: connections come and go.

    Args:
        neurons: what is said of those that sign.
        neuron: this node's.
        connections: those there are now.

    Attributes:
        acquaintance: who is who.
    """

    def __init__(
        self,
        config: NetworkConfig,
        ledger: Ledger,
        neurons: Neurons,
        neuron: NeuronId,
        connections: Callable[[], Sequence[Connection]],
    ) -> None:
        self._accept, self._ledger, self._connections = config.accepted, ledger, connections
        self._neurons = neurons
        named = [peer_of(text) for text in config.bootstrap]
        self.acquaintance = Acquaintance(
            ledger, neuron, named, neurons, all_named=bool(config.psk), near=self._near
        )

    def takes(self) -> Callable[[NeuronId], bool]:
        """Whether what a neuron attests may be used here, as things are now."""
        standings = self.acquaintance.standings()
        return lambda neuron: self._accept.takes(neuron, standings.get(neuron, STRANGER))

    def trust_in(self, neuron: NeuronId | None) -> Trust:
        """How much of what a neuron attests, and is used here, is to be computed again.

        Whoever is no friend and is used all the same was passed on by one, unless anybody is.
        """
        standing = STRANGER if neuron is None else self.acquaintance.standings().get(neuron)
        if standing is not None and standing.trust != "stranger":
            return standing.trust
        is_listed = neuron is not None and neuron in self._accept.neurons
        return "stranger" if self._accept.policy == "any" and not is_listed else "known"

    def may_count(self, neuron: NeuronId) -> bool:
        """Whether what a neuron attests may be used, whoever passes it on."""
        return not self._neurons.is_never(neuron)

    def passes_on(self, peer: PeerId) -> bool:
        """Whether what a peer offers may be used here, whoever computed it."""
        entry = self._ledger.entry(peer) or PeerEntry()
        trust = self.acquaintance.trust_of(peer, entry)
        return self._accept.passes_on(trust, is_banned=entry.is_banned)

    def _near(self) -> frozenset[PeerId]:
        """Who is connected from this machine or its LAN.

        Not through a gateway: where one puts its own address in place of theirs, as those of
        containers do, everybody seems to be there.
        """
        if self._accept.policy != "lan":
            return frozenset()
        near = [each for each in self._connections() if is_near(each.remote_ip)]
        try:
            far = gateways() if near else frozenset()
        except OSError:
            return frozenset()
        return frozenset(each.peer for each in near if each.remote_ip not in far)
