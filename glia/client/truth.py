"""Calls about what windows of peers proved to be."""

from __future__ import annotations

from typing import Literal

from glia.client.caller import Caller, OnProgress
from glia.graph.ids import ModelId, WindowId
from glia.graph.neuron import NeuronId
from glia.local import messages as m
from glia.local import network_values


class TruthCalls(Caller):
    """Computing windows again, and whose word is taken. All but `calibrate` raise NetworkError
    where it is offline."""

    def audit(
        self,
        tip: WindowId | None = None,
        *,
        peer: str | None = None,
        model_id: ModelId | None = None,
        sample: float = 1.0,
        on_progress: OnProgress | None = None,
    ) -> m.AuditReply:
        """Compute windows again: of a chain, or of those that came from peers.

        Args: sample: the share that is drawn.
        Raises: NotFound (no such window is here), BadRequest, EngineError, ModelError.
        """
        call = m.Audit(self._id(), tip, peer, model_id, sample)
        return self._call(call, m.AuditReply, on_progress)

    def calibrate(
        self,
        model: str,
        *,
        dtype: str | None = None,
        num_windows: int = 384,
        on_progress: OnProgress | None = None,
    ) -> m.CalibrateReply:
        """Measure how far off honest windows of a model are; also where the node is offline.

        Raises: UnknownModel, BadRequest, CapacityError, ModelError, EngineError, StoreError.
        """
        call = m.Calibrate(self._id(), model, dtype, num_windows)
        return self._call(call, m.CalibrateReply, on_progress)

    def neurons(self) -> list[network_values.NeuronValue]:
        """Those that sign, and what is known of them."""
        found: list[network_values.NeuronValue] = []
        while True:
            part = self._call(m.Neurons(self._id(), len(found)), m.NeuronsReply)
            found += part.neurons
            if len(found) >= part.total or not part.neurons:
                return found

    def evidence(self, neuron: NeuronId) -> list[bytes]:
        """What proves that it signed two canonical windows in place of one.

        Empty ones are larger than a frame.
        """
        found: list[bytes] = []
        while True:
            part = self._call(m.Evidence(self._id(), neuron, len(found)), m.EvidenceReply)
            found += part.proofs
            if len(found) >= part.total or not part.proofs:
                return found

    def trust(self, neuron: NeuronId, word: Literal["own", "known", "never", "default"]) -> None:
        """Take its word from now on, or never. Raises: BadRequest (it is this node's own)."""
        self._call(m.Trust(self._id(), neuron, word), m.Done)
