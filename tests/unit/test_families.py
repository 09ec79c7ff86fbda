"""The allow-list: refused with the reason, before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from glia.engine.families import ALLOWED, check_family
from glia.engine.load import load_model
from glia.engine.reading import read_config
from glia.errors import BadModelFile, ModelRefused
from tests.model_parts import save_tiny, settings


@pytest.mark.parametrize("model_type", sorted(ALLOWED))
def test_an_allowed_type_is_allowed(model_type: str) -> None:
    assert check_family({"model_type": model_type}) == model_type


def test_the_front_page_names_the_types_that_are_allowed() -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"can be loaded: {', '.join(sorted(ALLOWED))}." in page


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "llama4_text"}, "normalises K after rotating it"),
        ({"model_type": "hunyuan_v1_dense"}, "normalises K after rotating it"),
        ({"model_type": "deepseek_v3"}, "latents"),
        ({"model_type": "gemma3_text"}, "sliding-window"),
        ({"model_type": "qwen3_next"}, "recurrent"),
        ({"model_type": "mamba2"}, "recurrent"),
        ({"model_type": "phi"}, "part of each head"),
        ({"model_type": "gpt2"}, "no rotary"),
        ({"model_type": "mixtral"}, "experts"),
        ({"model_type": "somebodys_own"}, "not been tested"),
        ({"model_type": ["llama"]}, "not been tested"),
        ({}, "not been tested"),
        ({"model_type": "llama", "auto_map": {"AutoModel": "x.Y"}}, "code of its own"),
        ({"model_type": "llama", "quantization_config": {"bits": 4}}, "quantised"),
        ({"model_type": "mistral", "sliding_window": 4096}, "window of 4096"),
        ({"model_type": "starcoder2", "sliding_window": 4096}, "window of 4096"),
        (
            {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True},
            "window of 64",
        ),
        (
            {"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]},
            "do not attend to everything",
        ),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "dynamic"}}, "(dynamic)"),
        ({"model_type": "llama", "rope_scaling": {"type": "longrope"}}, "(longrope)"),
        ({"model_type": "llama", "rope_parameters": {"rope_type": "new"}}, "(new)"),
        ({"model_type": "llama", "rope_parameters": [1]}, "not a table"),
        (
            {"model_type": "qwen2", "rope_parameters": {"partial_rotary_factor": 0.5}},
            "part of each head",
        ),
        ({"model_type": "llama", "partial_rotary_factor": 0.25}, "part of each head"),
    ],
)
def test_what_is_refused_says_why(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelRefused) as caught:
        check_family(config)
    assert reason in caught.value.message
    assert "llama" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False},
        {"model_type": "qwen2", "sliding_window": 4096},
        {"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"model_type": "llama", "rope_scaling": None},
    ],
)
def test_settings_that_leave_attention_plain_are_allowed(config: dict[str, Any]) -> None:
    check_family(config)


def test_a_refused_type_is_refused_before_its_weights_are_opened(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    config = read_config(tmp_path)
    config["model_type"] = "gemma2"
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(ModelRefused, match="gemma2"):
        load_model(tmp_path, settings())


def test_an_unknown_compute_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="int8"):
        load_model(tmp_path, settings(dtype="int8"))


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_a_broken_config_is_a_bad_model_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadModelFile, match="config"):
        load_model(tmp_path, settings())


def test_a_missing_directory_is_a_bad_model_file(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="config"):
        load_model(tmp_path / "nowhere", settings())


@pytest.mark.parametrize("keep", [0, 7, 100, 5000])
def test_truncated_weights_are_a_bad_model_file(keep: int, tmp_path: Path) -> None:
    weights = save_tiny(tmp_path, "llama") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(BadModelFile):
        load_model(tmp_path, settings())


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    (save_tiny(tmp_path, "llama") / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(BadModelFile):
        load_model(tmp_path, settings())


def test_a_missing_tensor_is_a_bad_model_file(tmp_path: Path) -> None:
    weights = save_tiny(tmp_path, "llama") / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(BadModelFile, match="up_proj"):
        load_model(tmp_path, settings())


def test_an_unknown_tensor_is_a_bad_model_file(tmp_path: Path) -> None:
    weights = save_tiny(tmp_path, "llama") / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.layers.0.extra.weight"] = tensors["model.norm.weight"].clone()
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(BadModelFile, match="extra"):
        load_model(tmp_path, settings())


def test_a_tensor_of_another_shape_is_a_bad_model_file(tmp_path: Path) -> None:
    weights = save_tiny(tmp_path, "llama") / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:8].clone()
    save_file(tensors, weights, {"format": "pt"})
    with pytest.raises(BadModelFile, match="norm"):
        load_model(tmp_path, settings())
