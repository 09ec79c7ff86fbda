"""How fast engines compute prompts, as they were measured here."""

from __future__ import annotations

from daemon.binding import Binding
from glia.local.messages import Generated

USUAL_SPEED = 200.0  # tokens/s, of what was never measured: a small model on busy cores
_FEWEST_TOKENS = 64  # of a prompt that tells how fast it was
_NEW_SHARE = 0.3  # of a new measurement


class PrefillSpeeds:
    """Tokens/s by what is computed: a model, a profile, a numerics class."""

    def __init__(self) -> None:
        self._speeds: dict[Binding, float] = {}
        self._guesses: dict[Binding, float] = {}

    def learn(self, binding: Binding, generated: Generated) -> None:
        """An engine answered."""
        num_tokens = generated.usage.computed
        took_s = generated.timings_ms.get("prefill", 0.0) / 1000
        if num_tokens >= _FEWEST_TOKENS and took_s > 0:
            new = num_tokens / took_s
            old = self._speeds.get(binding, new)
            self._speeds[binding] = old + _NEW_SHARE * (new - old)

    def guess(self, binding: Binding, tokens_per_s: float) -> None:
        """What it is until a prompt was computed; 0 where nobody knows."""
        if tokens_per_s > 0:
            self._guesses[binding] = tokens_per_s

    def of(self, binding: Binding) -> float:
        """The speed of prompts to come."""
        return self.known(binding) or USUAL_SPEED

    def known(self, binding: Binding) -> float | None:
        """The same, where something is known of it."""
        return self._speeds.get(binding) or self._guesses.get(binding)
