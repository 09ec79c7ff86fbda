"""What stands at a model's path is told apart cheaply, and in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glia.errors import BadModelFile, ModelRefused
from glia.model.files import inspect_source
from tests.model_files import CONFIG, write_model

ROOT = Path(__file__).parents[2]


def test_a_directory(tmp_path: Path) -> None:
    source = inspect_source(write_model(tmp_path / "m", num_shards=2))
    assert (source.kind, source.model_type, source.context_tokens) == ("directory", "llama", 64)


@pytest.mark.parametrize("model_type", [None, 5, "", "x" * 65])
def test_a_directory_that_does_not_say_its_type(model_type: object, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", config={**CONFIG, "model_type": model_type})
    with pytest.raises(ModelRefused):
        inspect_source(model)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_directory_with_a_file_missing(name: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model / name).unlink()
    with pytest.raises(BadModelFile) as caught:
        inspect_source(model)
    assert caught.value.hint


def test_a_directory_with_truncated_weights(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    data = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(BadModelFile):
        inspect_source(model)


def test_a_directory_without_a_tensor(tmp_path: Path) -> None:
    with pytest.raises(BadModelFile, match="no tensors"):
        inspect_source(write_model(tmp_path / "m", tensors={}))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "no such file"),
        ("missing.gguf", "no such file"),
        ("weights.bin", "pickle"),
        ("weights.ckpt", "pickle"),
        ("card.md", "neither"),
    ],
)
def test_what_is_no_model_is_told_in_words(name: str, words: str, tmp_path: Path) -> None:
    if not name.startswith("missing"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(BadModelFile, match=words) as caught:
        inspect_source(tmp_path / name)
    assert caught.value.hint


def test_the_demo_model_is_one() -> None:
    source = inspect_source(ROOT / "models" / "smollm2")
    assert (source.model_type, source.context_tokens) == ("llama", 8192)


def test_no_weight_is_read(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m")
    (model / "config.json").write_text(json.dumps(CONFIG))
    weights = model / "model.safetensors"
    data = weights.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    with open(weights, "r+b") as file:
        file.truncate(length)
        file.truncate(len(data))  # the tensors are a hole now
    assert inspect_source(model).model_type == "llama"
