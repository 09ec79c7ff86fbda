"""Small random models on disk, and ways to run a loaded one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from glia.engine.load import LoadSettings, load_model
from glia.engine.loaded import LoadedModel
from glia.graph.profile import KvScheme
from glia.kv.compute import Piece

CONTEXT = 512
SMOLLM2 = Path(__file__).parent.parent / "models" / "smollm2"


def tiny_config(model_type: str, **changes: Any) -> Any:
    """Two layers, four query heads over two K/V heads of 16, unless changed."""
    fields: dict[str, Any] = {
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "sliding_window": None,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return AutoConfig.for_model(model_type, **{**fields, **changes})


def tiny_stock(model_type: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model whose logits depend on every part of it: norms and biases too."""
    random = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(model_type, **changes))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            spread = 0.2 if weight.dim() == 1 else 1.5 / weight.shape[-1] ** 0.5
            center = 1.0 if name.endswith("norm.weight") and "gemma" not in model_type else 0.0
            weight.copy_(center + spread * torch.randn(weight.shape, generator=random))
    return model.eval()


def save_tiny(path: Path, model_type: str, seed: int = 0, **changes: Any) -> Path:
    """The same model as a directory of safetensors."""
    tiny_stock(model_type, seed, **changes).save_pretrained(path)
    return path


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
