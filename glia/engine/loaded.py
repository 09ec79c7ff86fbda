"""A loaded model over its pool: what keeps `ComputeModel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from glia.engine.forward import Forward
from glia.engine.layer_zero import LayerZero
from glia.engine.threads import LayerThreads, fitting_threads
from glia.graph.profile import LayerShape
from glia.kv.attention import LayerHeads, PooledAttention, Rows
from glia.kv.compute import Piece
from glia.kv.pool import Pool


@dataclass(frozen=True)
class ModelFacts:
    """What is read off a model before anything in it is replaced.

    Attributes:
        shapes: K/V shape of each layer.
        heads: what attention needs of each layer.
        largest_weight_bytes: of the layers' linear modules.
        layer_zero: computes layer 0 alone.
    """

    shapes: tuple[LayerShape, ...]
    heads: list[LayerHeads]
    vocab_size: int
    context_tokens: int
    largest_weight_bytes: int
    layer_zero: LayerZero


class LoadedModel:
    """See `glia.kv.compute.ComputeModel`.

    Args:
        attention: over `pool`; the one that `forward` was built with.
    """

    def __init__(
        self, facts: ModelFacts, pool: Pool, attention: PooledAttention, forward: Forward
    ) -> None:
        self.shapes = facts.shapes
        self.vocab_size = facts.vocab_size
        self.context_tokens = facts.context_tokens
        self.numerics_class = ""
        self.decode_is_exact = False
        self.tokens_per_s = 0.0
        self.layer_zero = facts.layer_zero
        self._heads = facts.heads
        self._largest_weight_bytes = facts.largest_weight_bytes
        self._pool = pool
        self._attention = attention
        self._forward = forward
        self._layer_threads = LayerThreads()

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        return self._pool.dtype

    @property
    def storage(self) -> torch.dtype:
        """What raw K and V are stored in."""
        return self._attention.storage

    @property
    def rounds_at_once(self) -> bool:
        """Whether K and V are of fewer bits than they are computed in: the canonical class."""
        return self.dtype == torch.float64

    @property
    def block_size(self) -> int:
        """S, tokens of a window."""
        return self._pool.block_size

    @property
    def is_packed(self) -> bool:
        """Whether every linear layer has packed weights."""
        return self._forward.is_packed

    def new_raw(self, num_tokens: int) -> list[torch.Tensor]:
        """Room for the raw K and V of T tokens: per layer [T, G, 2 * D], storage dtype."""
        return [
            torch.zeros(num_tokens, s.kv_heads, 2 * s.head_dim, dtype=self.storage)
            for s in self.shapes
        ]

    def attention_is_exact(self) -> bool:
        """Whether attention alone gives the bits of whole tiles for any cut, on random data."""
        return self._attention.is_exact()

    @property
    def num_slots(self) -> int:
        """N, windows that the pool holds."""
        return self._pool.num_slots

    @property
    def slot_bytes(self) -> int:
        """One window in all layers, as the pool keeps it."""
        return self._pool.slot_bytes

    @torch.inference_mode()
    def forward(self, pieces: Sequence[Piece]) -> torch.Tensor:
        rows: list[Rows] = []
        tokens: list[int] = []
        ends: list[int] = []
        for piece in pieces:
            dispatch = self._pool.dispatch(piece.position, len(piece.tokens), piece.table)
            rows.append(Rows(dispatch, piece.raw))
            tokens += piece.tokens
            ends.append(len(tokens) - 1)
        self._attention.begin(rows)
        device = self._pool.device
        ids = torch.tensor(tokens, dtype=torch.int64, device=device)
        with fitting_threads(len(tokens), self._largest_weight_bytes):
            return self._forward(ids, torch.tensor(ends, device=device)).float().cpu()

    @torch.inference_mode()
    def restore(
        self, payloads: Sequence[torch.Tensor], position: int, slots: Sequence[int]
    ) -> None:
        @torch.inference_mode()
        def load(layer: int, part: int) -> None:
            rotary = self._heads[layer].rotary
            self._pool.load(layer, payloads[layer], slots, rotary, position, part)

        num_parts = self._pool.num_parts(len(slots) * self._pool.block_size)
        self._layer_threads.run(load, len(self._heads), num_parts)

    @torch.inference_mode()
    def clear(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._pool.zero_slot(slot)

    @torch.inference_mode()
    def wipe(self) -> None:
        self._attention.wipe()
