"""Small random models on disk, and ways to run a loaded one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from glia.engine.load import LoadSettings, load_model
from glia.engine.loaded import LoadedModel
from glia.graph.profile import KvScheme
from glia.kv.compute import Piece
from simulations.tiny_model import CONTEXT as CONTEXT
from simulations.tiny_model import save_tiny as save_tiny
from simulations.tiny_model import tiny_config as tiny_config
from simulations.tiny_model import tiny_stock as tiny_stock

SMOLLM2 = Path(__file__).parent.parent / "models" / "smollm2"


def settings(**changes: Any) -> LoadSettings:
    """f32, windows of 16, a pool of 4 MiB."""
    fields: dict[str, Any] = {
        "dtype": "float32",
        "block_size": 16,
        "scheme": KvScheme.F32,
        "l0_bytes": 4 << 20,
    }
    return LoadSettings(**{**fields, **changes})


def load_tiny(path: Path, model_type: str, **changes: Any) -> LoadedModel:
    """Saved, then loaded with these settings."""
    return load_model(save_tiny(path, model_type), settings(**changes))


@dataclass(frozen=True)
class Run:
    """What a run gave.

    Attributes:
        raw: per layer [T, G, 2 * D], storage dtype.
        logits: after each piece, [V].
    """

    raw: list[torch.Tensor]
    logits: list[torch.Tensor]

    def same_raw(self, other: Run) -> bool:
        """Whether the raw bytes are the same."""
        return all(same_bytes(a, b) for a, b in zip(self.raw, other.raw, strict=True))


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bytes, not only equal numbers: 0.0 and -0.0 differ."""
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def run(
    model: LoadedModel,
    tokens: Sequence[int],
    cuts: Sequence[int] = (),
    table: Sequence[int] | None = None,
) -> Run:
    """Compute tokens in pieces of these lengths, then the rest in one piece."""
    size = model.block_size
    slots = list(range(-(-len(tokens) // size))) if table is None else list(table)
    raw = model.new_raw(len(tokens))
    logits, at = [], 0
    lengths = [*cuts, len(tokens) - sum(cuts)] if sum(cuts) < len(tokens) else list(cuts)
    for length in lengths:
        end = at + length
        rows = [layer[at:end] for layer in raw]
        piece = Piece(tokens[at:end], at, slots[: -(-end // size)], rows)
        logits.append(model.forward([piece])[0])
        at = end
    return Run(raw, logits)


def payloads(model: LoadedModel, raw: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Whole windows of raw rows: per layer [W, S, G, 2 * D]."""
    size = model.block_size
    return [r[: len(r) // size * size].view(-1, size, *r.shape[1:]) for r in raw]


def seeded_tokens(count: int, vocab_size: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (count,), generator=random).tolist()
