"""Logits to the next token: greedy, or drawn with a seed that makes it repeatable."""

from __future__ import annotations

import torch

from glia.graph.sampling import Sampling


class Sampler:
    """Chooses the tokens of one sequence; owns its generator, so no other sequence disturbs it."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._generator = torch.Generator().manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor) -> int:
        """The next token.

        Args:
            logits: [V], f32.
        Returns: greedy: the first of the largest.
        """
        if self._sampling.temperature == 0.0:
            return int(torch.argmax(logits))
        weights, tokens = self._candidates(logits)
        total = torch.cumsum(weights, 0)
        draw = torch.rand((), generator=self._generator, dtype=torch.float64) * total[-1]
        at = int(torch.searchsorted(total, draw, right=True))
        return int(tokens[min(at, len(tokens) - 1)])

    def skip(self, num_tokens: int) -> None:
        """Go on as if so many tokens had been chosen."""
        if self._sampling.temperature:
            torch.rand(num_tokens, generator=self._generator, dtype=torch.float64)

    def fork(self) -> Sampler:
        """A sampler that goes on drawing as this one would, apart from it."""
        twin = Sampler(self._sampling)
        twin._generator.set_state(self._generator.get_state())
        return twin

    def _candidates(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities [C], f64, likeliest first (ties: smaller token), and their tokens [C]."""
        how = self._sampling
        scaled = logits.to("cpu", torch.float64) / how.temperature
        ordered, tokens = torch.sort(scaled, descending=True, stable=True)
        if how.top_k:
            ordered, tokens = ordered[: how.top_k], tokens[: how.top_k]
        weights = torch.softmax(ordered, 0)
        if how.top_p < 1.0:
            before = torch.cumsum(weights, 0) - weights
            num_kept = max(1, int((before < how.top_p).sum()))
            weights, tokens = weights[:num_kept], tokens[:num_kept]
        return weights, tokens
