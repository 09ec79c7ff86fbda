"""Small random models on disk, and their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

CONTEXT = 512
LONG_CONTEXT = 2048
VOCABULARY = 96


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


def save_model(path: Path, seed: int = 0, **changes: int) -> Path:
    """A llama of two layers, unless changed, whose tokens are words w0 to w95."""
    save_tiny(path, "llama", seed, max_position_embeddings=LONG_CONTEXT, **changes)
    words = {f"w{n}": n for n in range(VOCABULARY)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))  # noqa: S106
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.save(str(path / "tokenizer.json"))
    return path
