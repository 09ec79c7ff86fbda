"""A ComputeModel that adds: K/V that follow from everything before them, read from the pool.

Numbers are whole and below 2,039, so every dtype holds them exactly. Each new row is a sum
over all rows before it, as they stand in the pool, so a wrong slot, a stale row or a bad
restore changes every later row and token. "Rotated" is "plus the position".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from glia.graph.profile import LayerShape, Profile
from glia.kv.compute import Piece

_MOD = 2039


class AddingModel:
    """Keeps the ComputeModel port.

    Attributes:
        calls: (position, number of tokens) of every piece.
        num_forwards: forwards, of one piece or several.
        fail_at: position at which forward raises.
        poison_at: position whose V is NaN.
    """

    def __init__(
        self,
        profile: Profile,
        num_slots: int,
        *,
        vocab_size: int = 97,
        context_tokens: int = 8192,
        decode_is_exact: bool = True,
    ) -> None:
        self.profile = profile
        self.vocab_size = vocab_size
        self.context_tokens = context_tokens
        self.decode_is_exact = decode_is_exact
        self.numerics_class = "native:adding"
        self.calls: list[tuple[int, int]] = []
        self.num_forwards = 0
        self.num_restored = 0
        self.fail_at: int | None = None
        self.poison_at: int | None = None
        size = profile.block_size
        self.pool = [
            np.zeros((num_slots, size, s.kv_heads, 2 * s.head_dim)) for s in profile.layers
        ]

    @property
    def shapes(self) -> tuple[LayerShape, ...]:
        return self.profile.layers

    @property
    def num_computed(self) -> int:
        """Tokens that were computed."""
        return sum(count for _, count in self.calls)

    def forward(self, pieces: Sequence[Piece]) -> torch.Tensor:
        self.num_forwards += 1
        return torch.stack([self._forward(piece) for piece in pieces])

    def _forward(self, piece: Piece) -> torch.Tensor:
        tokens, position, table = piece.tokens, piece.position, piece.table
        size = self.profile.block_size
        assert len(table) * size >= position + len(tokens)
        assert all(0 <= token < self.vocab_size for token in tokens)
        if self.fail_at is not None and position <= self.fail_at < position + len(tokens):
            raise ValueError(f"a mistake with tokens {list(tokens)}")
        self.calls.append((position, len(tokens)))
        state = 0
        for layer, pool in enumerate(self.pool):
            lanes = np.arange(pool[0, 0].size).reshape(pool.shape[2:]) * 13 + layer
            state = self._history(pool, table, position)
            for index, token in enumerate(tokens):
                at = position + index
                row = (31 * token + 7 * state + lanes) % _MOD
                state = (state + (at + 1) * int(row.sum())) % _MOD
                if at == self.poison_at:
                    row = np.full_like(row, np.nan, dtype=float)
                piece.raw[layer][index] = torch.from_numpy(row).to(piece.raw[layer].dtype)
                pool[table[at // size], at % size] = row + at
        logits = torch.zeros(self.vocab_size)
        logits[(state * 5 + tokens[-1]) % self.vocab_size] = 1.0
        return logits

    def restore(
        self, payloads: Sequence[torch.Tensor], position: int, slots: Sequence[int]
    ) -> None:
        size = self.profile.block_size
        self.num_restored += len(slots)
        positions = position + np.arange(len(slots) * size).reshape(-1, size, 1, 1)
        for pool, payload in zip(self.pool, payloads, strict=True):
            pool[list(slots)] = payload.double().numpy() + positions

    def clear(self, slots: Sequence[int]) -> None:
        for pool in self.pool:
            pool[list(slots)] = 0

    def wipe(self) -> None:
        """It has nothing beside its slots."""

    def _history(self, pool: np.ndarray, table: Sequence[int], position: int) -> int:
        rows = pool[list(table)].reshape(-1, pool[0, 0].size)[:position]
        at = np.arange(position)[:, None]
        if not np.isfinite(rows).all():
            return 0
        weighted = (np.rint(rows - at).astype(np.int64) % _MOD).sum(1) * (at[:, 0] + 1)
        return int((weighted % _MOD).sum() % _MOD)
