"""The next tokens of a sequence through the model: K/V into its slots, full windows to the sealer.

Prefill from a window's start goes through a scratch buffer, whole windows at once;
anything less goes through the sequence's tail.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch

from glia.engine.payloads import Tail, scratch_rows
from glia.engine.sealing import Sealer
from glia.engine.sequence import Sequence
from glia.errors import EngineFailed
from glia.graph.profile import Profile
from glia.kv.compute import ComputeModel, Piece


@dataclass(frozen=True, slots=True)
class Computed:
    """A sequence's next tokens, in the pool but not yet counted.

    Attributes:
        raw: per layer [T, G, 2 * D]: rows of `tail`, or of the scratch buffer.
        logits: of the last one, [V], f32.
        spent_s: what the forward took that computed them.
    """

    raw: Several[torch.Tensor]
    tail: Tail | None
    logits: torch.Tensor
    spent_s: float


class Computation:
    """Runs one model over the sequences of one engine.

    Args:
        piece_tokens: most tokens of one call.
    """

    def __init__(
        self,
        model: ComputeModel,
        sealer: Sealer,
        profile: Profile,
        piece_tokens: int,
    ) -> None:
        self._model = model
        self._sealer = sealer
        self._profile = profile
        self._size = profile.block_size
        self._piece = piece_tokens
        self._scratch = scratch_rows(profile, piece_tokens)

    def piece(self, sequence: Sequence) -> int:
        """How many tokens to prefill next: to the next multiple of a piece, so that the
        model's tiles are whole, or to where peers' windows begin; from inside a window only
        to that window's end."""
        start = sequence.num_computed
        end = min(len(sequence.tokens), (start // self._piece + 1) * self._piece)
        if sequence.meets_at is not None and sequence.meets_at > start:
            end = min(end, sequence.meets_at)
        if start % self._size:
            end = min(end, start + self._size - start % self._size)
        return end - start

    def last_fills_window(self, sequence: Sequence) -> bool:
        """Whether one more token computed would fill a window that may be named."""
        end = len(sequence.tokens)
        return sequence.num_pending == 1 and not end % self._size and self._seals(sequence, end)

    def compute_one_each(self, sequences: Several[Sequence]) -> list[Computed]:
        """K/V of the next token of each, in one forward.

        Raises: whatever the model raises; then nothing is counted, and each may be tried alone.
        """
        return self._compute(sequences, 1)

    def run(self, sequence: Sequence, count: int, part: str) -> torch.Tensor:
        """K/V of the next `count` tokens; see `keep`. Raises: whatever the model raises, too."""
        (computed,) = self._compute([sequence], count)
        return self.keep(sequence, computed, part)

    def keep(self, sequence: Sequence, computed: Computed, part: str) -> torch.Tensor:
        """Count what was computed, and have full windows named; time counts against `part`.

        Returns: logits of the last token, [V], f32.
        Raises: EngineFailed where something is not finite; nothing of it is sealed.
        """
        started = time.perf_counter()
        if not bool(torch.isfinite(computed.logits).all()):
            raise EngineFailed("the model gave logits that are not finite")
        count = len(computed.raw[0])
        sequence.num_computed += count
        if computed.tail:
            self._keep_tail(sequence, computed.tail, count)
        else:
            self._keep_windows(sequence, computed.raw)
        sequence.spend(part, computed.spent_s + time.perf_counter() - started)
        return computed.logits

    def _compute(self, sequences: Several[Sequence], count: int) -> list[Computed]:
        started = time.perf_counter()
        pieces, tails = [], []
        for sequence in sequences:
            start, end = sequence.num_computed, sequence.num_computed + count
            by_windows = not start % self._size and count >= self._size
            tail = None if by_windows else sequence.tail or Tail(self._profile)
            raw = tail.rows(count) if tail else [rows[:count] for rows in self._scratch]
            pieces.append(Piece(sequence.tokens[start:end], start, sequence.table, raw))
            tails.append(tail)
        logits = self._model.forward(pieces)
        spent_s = time.perf_counter() - started
        return [
            Computed(piece.raw, tail, row, spent_s)
            for piece, tail, row in zip(pieces, tails, logits, strict=True)
        ]

    def wipe(self) -> None:
        """Between two steps: zero the raw rows of the last ones."""
        for rows in self._scratch:
            rows.zero_()

    def _keep_tail(self, sequence: Sequence, tail: Tail, count: int) -> None:
        tail.grow(count)
        sequence.tail = tail
        if tail.num_rows == self._size:
            sequence.tail = None
            try:
                self._seal(sequence, tail.windows())
            finally:
                tail.wipe()

    def _keep_windows(self, sequence: Sequence, raw: Several[torch.Tensor]) -> None:
        count = len(raw[0])
        whole = count // self._size * self._size
        if whole < count:
            sequence.tail = Tail(self._profile)
            for kept, rows in zip(sequence.tail.rows(count - whole), raw, strict=True):
                kept.copy_(rows[whole:])
            sequence.tail.grow(count - whole)
        self._seal(sequence, [r[:whole].view(-1, self._size, *r.shape[1:]) for r in raw])

    def _seal(self, sequence: Sequence, windows: Several[torch.Tensor]) -> None:
        """Have the next full windows named, if they may be; else no later one may either."""
        end = (sequence.num_staged + len(windows[0])) * self._size
        if self._seals(sequence, end):
            self._sealer.seal(sequence, windows)
        else:
            sequence.keepable = False

    def _seals(self, sequence: Sequence, end: int) -> bool:
        """Whether windows up to this position get names: decoded ones only where exact."""
        exact = self._model.decode_is_exact or end <= sequence.prompt_length
        return sequence.keepable and exact
