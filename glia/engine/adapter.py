"""LoRA adapters, merged into the weights at load: W + scale * B A.

    N outputs, K inputs, r rank; lora_A [r, K], lora_B [N, r]

Only plain LoRA on Linear layers: whatever else an adapter asks for is refused, since
leaving it out would change the model silently.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from glia.errors import BadModelFile, ModelRefused

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_NAME = re.compile(r"base_model\.model\.(?P<module>[\w.]+)\.lora_(?P<side>[AB])\.weight")
_MUST_BE_OFF = (
    "alpha_pattern", "bias", "fan_in_fan_out", "layer_replication", "lora_bias",
    "megatron_config", "modules_to_save", "rank_pattern", "target_parameters",
    "trainable_token_indices", "use_dora", "use_qalora",
)  # fmt: skip
_OFF: tuple[object, ...] = (None, False, "none", {}, [])


@torch.no_grad()
def merge_adapter(model: nn.Module, path: Path) -> None:
    """Add an adapter's product to each weight it names, computed in f32, or in float64
    where weights are.

    Args:
        path: PEFT directory with adapter_config.json and adapter_model.safetensors.
    Raises: BadModelFile, ModelRefused.
    """
    scale = _scale(path)
    for name, (a, b) in _pairs(path).items():
        linear = _linear(model, name, path)
        dtype = torch.promote_types(linear.weight.dtype, torch.float32)
        product = b.to(dtype) @ a.to(dtype)
        if product.shape != linear.weight.shape:
            raise BadModelFile(f"{path}: {name} is {tuple(product.shape)}, the model's is not")
        merged = linear.weight.to(dtype) + scale * product
        linear.weight.copy_(merged.to(linear.weight.dtype))


def _scale(path: Path) -> float:
    try:
        config = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadModelFile(f"{path / _CONFIG}: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ModelRefused(f"{path}: not a LoRA adapter")
    for key in _MUST_BE_OFF:
        if config.get(key) not in _OFF:
            raise ModelRefused(f"{path}: {key} is not supported", hint="merge it beforehand")
    rank, alpha = _positive(config, "r", path), _positive(config, "lora_alpha", path)
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _positive(config: dict[str, Any], key: str, path: Path) -> float:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise BadModelFile(f"{path / _CONFIG}: {key} must be a positive number")
    return float(value)


def _pairs(path: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Module name -> (A, B)."""
    sides: dict[str, dict[str, torch.Tensor]] = {}
    try:
        with safe_open(path / _WEIGHTS, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118
                match = _NAME.fullmatch(key)
                if match is None:
                    raise ModelRefused(f"{path}: {key!r} is not a LoRA weight")
                sides.setdefault(match["module"], {})[match["side"]] = file.get_tensor(key)
    except (OSError, SafetensorError) as error:
        raise BadModelFile(f"{path / _WEIGHTS}: {error}") from error
    for name, pair in sides.items():
        if pair.keys() != {"A", "B"} or any(tensor.dim() != 2 for tensor in pair.values()):
            raise BadModelFile(f"{path}: {name} has no two matrices")
        if pair["A"].shape[0] != pair["B"].shape[1]:
            raise BadModelFile(f"{path}: {name} has matrices of different ranks")
    return {name: (pair["A"], pair["B"]) for name, pair in sides.items()}


def _linear(model: nn.Module, name: str, path: Path) -> nn.Linear:
    try:
        module = model.get_submodule(name)
    except AttributeError as error:
        raise ModelRefused(f"{path}: the model has no layer {name}") from error
    if not isinstance(module, nn.Linear):
        raise ModelRefused(f"{path}: {name} is not a linear layer")
    return module
