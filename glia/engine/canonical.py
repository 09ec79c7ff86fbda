"""The canonical class: K and V computed in float64, rounded to the storage dtype at once.

    W windows, S block_size, P = W * S positions before, T new tokens, L layers, G kv heads,
    D head_dim, V vocabulary

What comes out depends on the model's files, the storage dtype and the tokens, and not on
how they were cut, on threads or on the processor: other kernels differ by some 1e-15, and
rounding to 24 bits or fewer hides that. Measured, not proven (glia/spec/13-numerics.md).
Attention reads what was rounded, so K/V of any window can be computed again from the
stored windows before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from glia.engine.families import check_family
from glia.engine.frequencies import WideRotary
from glia.engine.huggingface import attend_by, layer_heads, layer_shapes, logits_of
from glia.engine.layer_zero import LayerZero
from glia.engine.reading import read_config, read_exactly
from glia.engine.wide import WIDE, kept_bytes, widen
from glia.errors import PromptError
from glia.kv.attention import LayerAttention
from glia.kv.stored import StoredAttention

_PIECE = 512  # tokens at once: below, widening weights costs more than computing

Progress = Callable[[int, int], None]


def _silent(_done: int, _total: int) -> None:
    """Progress that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """K and V of T tokens.

    Attributes:
        rows: per layer [T, G, 2 * D], storage dtype, K unrotated, then V.
        unrounded: the same in float64, where they were asked for.
        logits: [T, V] float64 where all were asked for, else of the last token, [1, V].
    """

    rows: tuple[torch.Tensor, ...]
    unrounded: tuple[torch.Tensor, ...] | None
    logits: torch.Tensor


class WideForward:
    """The way through an engine's model, over its pool."""

    is_packed = False

    def __init__(self, model: PreTrainedModel, attention: LayerAttention, *, keep: bool) -> None:
        """Takes the model over.

        Args:
            keep: whether weights are kept in float64, not widened for every step.
        Raises: ModelRefused where a part of it is not known in float64.
        """
        self._model = model
        attend_by(model, attention)
        widen(model, keep=keep)

    def __call__(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return logits_of(self._model, tokens, wanted)


class CanonicalModel:
    """A model of the canonical class. Single-threaded, as an engine is.

    Attributes:
        shapes: K/V shape of each layer.
        context_tokens: the model's positional limit.
        vocab_size: V.
    """

    def __init__(self, model: PreTrainedModel, *, keep: bool) -> None:
        """Takes the model over.

        Args:
            keep: whether weights are kept in float64, not widened for every step.
        Raises: ModelRefused where a part of it is not known in float64.
        """
        self.shapes = layer_shapes(model)
        self.context_tokens = int(model.config.max_position_embeddings)
        self.vocab_size = int(model.config.vocab_size)
        self._model = model
        self._rotary_of = WideRotary(model)
        widen(model, keep=keep)
        self._layer_zero = LayerZero(model)

    @classmethod
    def open(
        cls, path: Path, adapters: Sequence[Path] = (), *, most_bytes: int = 0
    ) -> CanonicalModel:
        """From a directory of safetensors.

        Args:
            most_bytes: weights are kept in float64 where they take at most so much. Else they
                stay as `read_exactly` has them, and are widened bit by bit for each step.
        Raises: BadModelFile, ModelRefused.
        """
        check_family(read_config(path))
        model = read_exactly(path, adapters)
        return cls(model, keep=kept_bytes(model) <= most_bytes)

    def layer_zero(self, tokens: Sequence[int]) -> torch.Tensor:
        """Unrounded K and V of layer 0, which need nothing before them: [T, G, 2 * D], float64.

        Raises: PromptError.
        """
        self._check(tokens, 0)
        return self._layer_zero(tokens)

    def recompute(
        self,
        before: Sequence[torch.Tensor],
        tokens: Sequence[int],
        storage: torch.dtype,
        *,
        unrounded: bool = False,
        all_logits: bool = False,
        claimed: Sequence[torch.Tensor] | None = None,
        piece_tokens: int = _PIECE,
        on_progress: Progress = _silent,
    ) -> Recomputed:
        """K and V of T tokens, from the stored K and V of those before them.

        Memory beside the result: activations of `piece_tokens` tokens, and one layer's K and
        V of P + T positions in float64.

        Args:
            before: per layer [..., G, 2 * D], K unrotated, then V, in `storage`; the leading
                dimensions, [W, S] or [P], are positions from 0 on. Strided views are read where
                they stand. Empty: the tokens start at position 0.
            tokens: T >= 1 ids.
            storage: dtype that K and V are rounded to.
            unrounded: K and V before rounding are wanted, too.
            all_logits: logits of every token are wanted.
            claimed: per layer [T, G, 2 * D] in `storage`: attention reads these as the tokens' K
                and V, so that what comes out follows from them.
            piece_tokens: most tokens computed at once.
            on_progress: called with (done, T) tokens.
        Raises: PromptError (no token, one outside of the vocabulary, more than the context).
        """
        before = list(before) or [
            torch.empty(0, s.kv_heads, 2 * s.head_dim, dtype=storage) for s in self.shapes
        ]
        num_before, count = before[0].shape[:-2].numel(), len(tokens)
        self._check(tokens, num_before)
        rows = self._new_rows(count, storage)
        wide = self._new_rows(count, WIDE) if unrounded else None
        heads = layer_heads(self._model, self._rotary_of.tables(num_before + count))
        attention = StoredAttention(heads, before, rows, wide, WIDE, claimed)
        attend_by(self._model, attention)
        logits: list[torch.Tensor] = []
        for first in range(0, count, piece_tokens):
            piece = tokens[first : first + piece_tokens]
            attention.begin(first, len(piece))
            logits = [*(logits if all_logits else ()), self._run(piece, all_logits)]
            on_progress(first + len(piece), count)
        return Recomputed(tuple(rows), None if wide is None else tuple(wide), torch.cat(logits))

    @torch.inference_mode()
    def _run(self, tokens: Sequence[int], all_logits: bool) -> torch.Tensor:
        ids = torch.tensor(tokens, dtype=torch.int64)
        wanted = torch.arange(len(ids)) if all_logits else torch.tensor([len(ids) - 1])
        return logits_of(self._model, ids, wanted)

    def _new_rows(self, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
        return [torch.zeros(count, s.kv_heads, 2 * s.head_dim, dtype=dtype) for s in self.shapes]

    def _check(self, tokens: Sequence[int], num_before: int) -> None:
        if not tokens:
            raise PromptError("no token to compute", hint="give at least one")
        if num_before + len(tokens) > self.context_tokens:
            raise PromptError(
                f"position {num_before + len(tokens)} is past the context of "
                f"{self.context_tokens} tokens"
            )
        if not all(0 <= token < self.vocab_size for token in tokens):
            raise PromptError(f"a token is outside of the vocabulary of {self.vocab_size}")
