"""What a computing model is to the engine: tokens and slots in, K/V and logits out.

    T new tokens, W windows, S block_size, H query heads, G kv heads, D head_dim,
    N slots, V vocabulary

Keys stand in the pool already rotated for the position they are used at; `raw` is
where the unrotated K and V of the new tokens go, in the storage dtype, for sealing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from glia.graph.profile import LayerShape


@dataclass(frozen=True, slots=True)
class Piece:
    """The next tokens of one sequence: T >= 1 at `position`..`position + T - 1`.

    Attributes:
        tokens: T token ids.
        position: absolute position of the first; everything before is in the pool.
        table: block table: slot of window w at table[w]; covers position + T tokens.
        raw: per layer [T, G, 2 * D], storage dtype, K unrotated then V; written by `forward`.
            Host memory of the engine's: rows of one layer are contiguous; the layers are
            apart.
    """

    tokens: Sequence[int]
    position: int
    table: Sequence[int]
    raw: Sequence[torch.Tensor]


class ComputeModel(Protocol):
    """A loaded causal model over an L0 pool."""

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        """K/V shape of each layer that owns K/V."""

    @property
    def context_tokens(self) -> int:
        """The model's positional limit."""

    @property
    def vocab_size(self) -> int:
        """V."""

    @property
    def numerics_class(self) -> str:
        """native:<schedule>,<torch>,<kernel/ISA fingerprint>,<dtype> (DESIGN section 4)."""

    @property
    def decode_is_exact(self) -> bool:
        """Whether decoding gave the bytes of prefill in the self-test at load."""

    def forward(self, pieces: Sequence[Piece]) -> torch.Tensor:
        """Compute the pieces of B sequences together; each has the bits it has alone.

        Writes rotated K and V into the pool by slot, and raw K and V into each `raw`.
        Pieces of one sequence may follow each other in order.

        Returns: logits of each piece's last token, [B, V], f32.
        """

    def restore(
        self,
        payloads: Sequence[torch.Tensor],
        position: int,
        slots: Sequence[int],
    ) -> None:
        """Put W stored windows into the pool, rotated once for their positions.

        Args:
            payloads: per layer [W, S, G, 2 * D], storage dtype (strided views welcome).
            position: absolute position of the first window's first token.
            slots: W slots to fill.
        """

    def clear(self, slots: Sequence[int]) -> None:
        """Zero these slots: what a failed step left there must not meet a mask (0 x NaN).

        Slots that were never written are not touched.
        """

    def wipe(self) -> None:
        """Zero what computing leaves beside the slots: gathered rows, packed queries."""
