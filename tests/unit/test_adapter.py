"""LoRA adapters merged at load: the same logits as adding the product by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from glia.engine.load import load_model
from glia.errors import BadModelFile, ModelRefused
from tests.model_parts import run, save_tiny, seeded_tokens, settings, tiny_stock

TOKENS = seeded_tokens(40, 96)
TARGET = "model.layers.1.self_attn.v_proj"
PREFIX = f"base_model.model.{TARGET}"
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["v_proj"]}


def matrices() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    a, b = (torch.randn(*shape, generator=random) for shape in ((4, 64), (32, 4)))
    return {f"{PREFIX}.lora_A.weight": a, f"{PREFIX}.lora_B.weight": b}


def save_adapter(
    path: Path, tensors: dict[str, torch.Tensor] | None = None, **changes: Any
) -> Path:
    path.mkdir(exist_ok=True)
    (path / "adapter_config.json").write_text(json.dumps({**CONFIG, **changes}))
    save_file(matrices() if tensors is None else tensors, path / "adapter_model.safetensors")
    return path


def logits_with(path: Path, *adapters: Path) -> torch.Tensor:
    model = load_model(save_tiny(path / "model", "llama"), settings(adapters=adapters))
    return run(model, TOKENS).logits[-1]


@pytest.mark.parametrize(("changes", "scale"), [({}, 2.0), ({"use_rslora": True}, 4.0)])
def test_the_product_is_added(changes: dict[str, Any], scale: float, tmp_path: Path) -> None:
    stock = tiny_stock("llama")
    a, b = matrices().values()
    with torch.no_grad():
        stock.get_submodule(TARGET).weight += scale * b @ a
        expected = stock(torch.tensor([TOKENS])).logits[0, -1]
    ours = logits_with(tmp_path, save_adapter(tmp_path / "lora", **changes))
    assert (ours - expected).abs().max() <= 1e-4
    assert not torch.equal(ours, logits_with(tmp_path))


def test_adapters_are_merged_one_after_the_other(tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "lora")
    double = save_adapter(tmp_path / "double", lora_alpha=16)
    twice = logits_with(tmp_path, adapter, adapter)
    assert (twice - logits_with(tmp_path, double)).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "LOHA"}, "not a LoRA"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"rank_pattern": {"v_proj": 8}}, "rank_pattern"),
        ({"alpha_pattern": {"v_proj": 8}}, "alpha_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    ],
)
def test_what_would_change_the_model_otherwise_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelRefused, match=message):
        logits_with(tmp_path, save_adapter(tmp_path / "lora", **changes))


@pytest.mark.parametrize("value", [0, -1, True, "8", None, float("nan")])
@pytest.mark.parametrize("key", ["r", "lora_alpha"])
def test_a_rank_or_scale_that_is_no_positive_number(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match=key):
        logits_with(tmp_path, save_adapter(tmp_path / "lora", **{key: value}))


def test_tensors_that_do_not_fit(tmp_path: Path) -> None:
    a, b = matrices().values()
    names = list(matrices())
    cases: list[tuple[dict[str, torch.Tensor], type[Exception], str]] = [
        ({names[0]: a}, BadModelFile, "two matrices"),
        ({names[0]: a[:2].clone(), names[1]: b}, BadModelFile, "different ranks"),
        ({names[0]: a, names[1]: b[:8].clone()}, BadModelFile, "is not"),
        ({names[0]: a[0].clone(), names[1]: b}, BadModelFile, "two matrices"),
        ({**matrices(), f"{PREFIX}.lora_magnitude_vector": b}, ModelRefused, "not a LoRA weight"),
        (
            {name.replace("v_proj", "x_proj"): t for name, t in matrices().items()},
            ModelRefused,
            "no layer",
        ),
        (
            {name.replace("self_attn.v_proj", "mlp"): t for name, t in matrices().items()},
            ModelRefused,
            "not a linear layer",
        ),
    ]
    for number, (tensors, error, message) in enumerate(cases):
        with pytest.raises(error, match=message):
            logits_with(tmp_path, save_adapter(tmp_path / str(number), tensors))


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_missing_or_broken_file(file: str, tmp_path: Path) -> None:
    adapter = save_adapter(tmp_path / "lora")
    (adapter / file).write_bytes(b"\x00broken")
    with pytest.raises(BadModelFile, match=file):
        logits_with(tmp_path, adapter)
    (adapter / file).unlink()
    with pytest.raises(BadModelFile, match=file):
        logits_with(tmp_path, adapter)
