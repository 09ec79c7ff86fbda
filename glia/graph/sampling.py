"""How the next token is chosen from its logits."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from glia.errors import MalformedParticle

MAX_TEMPERATURE = 100.0
MAX_TOP_K = 2**20
MAX_SEED = 2**63 - 1

_LAYOUT = struct.Struct("<ddIQ")
SAMPLING_BYTES = _LAYOUT.size


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: 0 is greedy; the rest is then not looked at.
        top_p: the smallest set of likeliest tokens that has at least this probability; 1 = all.
        top_k: at most so many of the likeliest tokens; 0 = all.
        seed: the draws of two requests with one seed are the same.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    @property
    def plain(self) -> Sampling:
        """The same choices, said in the one way there is for them."""
        return Sampling() if self.temperature == 0.0 else self


def encode_sampling(how: Sampling) -> bytes:
    """28 bytes."""
    return _LAYOUT.pack(how.temperature, how.top_p, how.top_k, how.seed)


def decode_sampling(data: bytes) -> Sampling:
    """Strict: encoding again gives the input. Raises: MalformedParticle."""
    how = Sampling(*_LAYOUT.unpack(data))
    fits = (
        0.0 <= how.temperature <= MAX_TEMPERATURE
        and 0.0 < how.top_p <= 1.0
        and how.top_k <= MAX_TOP_K
        and how.seed <= MAX_SEED
    )
    if not fits or encode_sampling(how.plain) != data:
        raise MalformedParticle("settings of a sampler are out of range")
    return how
