"""Rotary tables in float64, from a model's config.

    D head_dim, P positions

transformers computes frequencies and angles in f32, with kernels that depend on the
processor. Here frequencies are computed in Python's floats and rounded to f32 once, so
they are those that models are trained and run with; an angle, position x frequency, is
then exact in float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from glia.errors import ModelRefused
from glia.kv.rotary import Rotary

_PIECE = 128  # positions: the last of a vector must not depend on how many are asked for
_MOST_DIFFERENT = 1e-5


class WideRotary:
    """Of the kind that a model's own rotary module is of.

    Args:
        model: as transformers loaded it.
    Raises: ModelRefused where frequencies are not near those of that module.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        module = model.model.rotary_emb
        frequencies = _frequencies(module.inv_freq, model.config.rope_parameters)
        self._scaling = float(module.attention_scaling)
        self._frequencies = torch.tensor([*frequencies, *frequencies], dtype=torch.float64)

    def tables(self, num_positions: int) -> Rotary:
        """Of positions from 0 on, [P, D]."""
        cos, sin = [], []
        for start in range(0, num_positions, _PIECE):
            positions = torch.arange(start, start + _PIECE, dtype=torch.float64)
            angles = positions[:, None] * self._frequencies
            cos.append(angles.cos() * self._scaling)
            sin.append(angles.sin() * self._scaling)
        return Rotary.from_tables(torch.cat(cos)[:num_positions], torch.cat(sin)[:num_positions])


def _frequencies(inv_freq: torch.Tensor, rope: Mapping[str, Any]) -> list[float]:
    """D / 2 of them, each a number that f32 has.

    Args:
        inv_freq: as transformers has them.
    """
    stock = inv_freq.double().cpu()
    dim = 2 * len(stock)
    plain = [float(rope["rope_theta"]) ** -(index / dim) for index in range(0, dim, 2)]
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        plain = [each / rope["factor"] for each in plain]
    elif kind == "llama3":
        plain = [_llama3(each, rope) for each in plain]
    elif kind == "yarn":
        plain = _yarn(plain, rope)
    found = torch.tensor(plain, dtype=torch.float64).float().double()
    if not float(((found - stock) / stock).abs().max()) < _MOST_DIFFERENT:
        raise ModelRefused(f"its rotary frequencies ({kind}) are not known in float64")
    return found.tolist()


def _llama3(frequency: float, rope: Mapping[str, Any]) -> float:
    """Long waves slowed by a factor, short ones kept, those between interpolated."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    if turns > high:
        return frequency
    slowed: float = frequency / rope["factor"]
    if turns < low:
        return slowed
    smooth: float = (turns - low) / (high - low)
    return (1 - smooth) * slowed + smooth * frequency


def _yarn(plain: list[float], rope: Mapping[str, Any]) -> list[float]:
    """A ramp over the dimensions, from kept to slowed by a factor."""
    half, base = len(plain), float(rope["rope_theta"])
    length = rope["original_max_position_embeddings"]

    def dimension(turns: float) -> float:
        return 2 * half * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = dimension(rope.get("beta_fast") or 32)
    high = dimension(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * half - 1)
    width = high - low if high != low else 0.001
    found = []
    for index, frequency in enumerate(plain):
        slowed = min(max((index - low) / width, 0.0), 1.0)
        found.append(frequency / rope["factor"] * slowed + frequency * (1 - slowed))
    return found
