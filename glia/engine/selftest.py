"""What a model must show at load before it may answer: stock logits, and bytes that do not
depend on how its tokens were cut.

    T new tokens, L layers, G kv heads, D head_dim, S block_size, V vocabulary
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from transformers import PreTrainedModel

from glia.engine.loaded import LoadedModel
from glia.errors import ModelRefused
from glia.kv.compute import Piece

_PAST_WINDOW = 24
_MAX_WINDOW = 64
_STEP = 7919  # a prime: token ids spread over the vocabulary
_RAGGED = (1, 2, 5, 11)
_MAX_DIFFERENCE = 1e-4
# Of the logits' spread. Measured on SmolLM2: bf16 0.05, f16 0.005.
_MAX_RELATIVE = {torch.bfloat16: 0.15, torch.float16: 0.02}


@dataclass(frozen=True, slots=True)
class Trace:
    """What a run left: raw K and V of every layer [T, G, 2 * D], logits after each piece [V]."""

    raw: list[torch.Tensor]
    logits: list[torch.Tensor]

    def equals(self, other: Trace) -> bool:
        """Whether raw bytes and the last logits are the same."""
        return torch.equal(self.logits[-1], other.logits[-1]) and self.same_raw(other)

    def same_raw(self, other: Trace) -> bool:
        """Whether raw bytes are the same."""
        pairs = zip(self.raw, other.raw, strict=True)
        return all(_same_bytes(a, b) for a, b in pairs)


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


class SelfTest:
    """One short run of token ids, computed by stock attention first.

    Args:
        model: as transformers loaded it, nothing replaced yet.
        block_size: S; decoding goes across a window's edge.
    Raises: ModelRefused for a context that is too short.
    """

    def __init__(self, model: PreTrainedModel, block_size: int) -> None:
        context = model.config.max_position_embeddings
        if context < _PAST_WINDOW:
            raise ModelRefused(f"a context of {context} tokens is too short to be tested")
        count = min(min(block_size, _MAX_WINDOW) + _PAST_WINDOW, context)
        self._edge = min(block_size, _MAX_WINDOW, count - 4)
        vocab = model.config.vocab_size
        self._tokens = [(1 + index * _STEP) % vocab for index in range(count)]
        ids = torch.tensor(self._tokens, device=model.device)[None]
        self._dtype = model.dtype
        with torch.inference_mode():
            self._stock = model(input_ids=ids, use_cache=False).logits[0].float().cpu()

    def trace(
        self,
        loaded: LoadedModel,
        cuts: Sequence[int] = (),
        *,
        scattered: bool = False,
        together: bool = False,
    ) -> Trace:
        """Run the tokens in pieces of the given lengths, then the rest in one piece.

        Args:
            scattered: in slots that do not follow each other.
            together: all pieces in one forward, as those of several sequences.
        """
        count, size = len(self._tokens), loaded.block_size
        table = list(range(-(-count // size)))
        if scattered:
            table.reverse()
        raw = loaded.new_raw(count)
        pieces, at = [], 0
        for cut in (*cuts, count - sum(cuts)):
            end = at + cut
            pieces.append(Piece(self._tokens[at:end], at, table, [r[at:end] for r in raw]))
            at = end
        groups = [pieces] if together else [[piece] for piece in pieces]
        logits = [row for group in groups for row in loaded.forward(group)]
        loaded.clear(table)
        return Trace(raw, logits)

    def run(self, loaded: LoadedModel) -> None:
        """All of it: compares logits, then settles `decode_is_exact` and `tokens_per_s`.

        Raises: ModelRefused, with the difference, where logits are not stock's.
        """
        whole = self.trace(loaded)
        self._check_logits(loaded, whole, ())
        ragged = self.trace(loaded, _RAGGED, scattered=True)
        self._check_logits(loaded, ragged, _RAGGED)
        decoded = self.trace(loaded, (self._edge - 1, 1, 1, 1))
        together = self.trace(loaded, (self._edge - 1, 1, 1, 2), together=True)
        others = (ragged, decoded, together)
        if loaded.rounds_at_once:  # what rounding hides does not matter
            loaded.decode_is_exact = all(other.same_raw(whole) for other in others)
        else:
            loaded.decode_is_exact = loaded.attention_is_exact() and all(
                other.equals(whole) for other in others
            )
        started = time.perf_counter()  # the first run would tell what it takes to begin, too
        self.trace(loaded)
        loaded.tokens_per_s = len(self._tokens) / (time.perf_counter() - started)

    def _check_logits(self, loaded: LoadedModel, trace: Trace, cuts: Sequence[int]) -> None:
        ends = [*accumulate(cuts), len(self._tokens)]
        for end, logits in zip(ends, trace.logits, strict=True):
            _check_logits(logits, self._stock[end - 1], loaded, self._dtype)


def _check_logits(
    logits: torch.Tensor, stock: torch.Tensor, loaded: LoadedModel, stock_dtype: torch.dtype
) -> None:
    dtypes = (loaded.dtype, loaded.storage, stock_dtype)
    dtype = min(dtypes, key=lambda dtype: torch.finfo(dtype).bits)
    if dtype == torch.float32:
        difference, allowed = float((logits - stock).abs().max()), _MAX_DIFFERENCE
    else:
        spread = (stock - stock.mean()).norm()
        difference, allowed = float((logits - stock).norm() / spread), _MAX_RELATIVE[dtype]
    if not difference <= allowed:  # also where it is NaN
        raise ModelRefused(
            f"logits differ from stock attention by {difference:.2g}; {allowed:.2g} is allowed",
            hint="try --dtype float32; if it is refused too, this torch computes it wrongly",
        )
