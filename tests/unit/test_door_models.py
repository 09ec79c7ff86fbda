"""What the door keeps of models, and what its log may say of an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.door import models
from daemon.door.faults import place_of
from glia.errors import BadRequest, UnknownModel
from glia.local.values import ModelValue
from tests.model_files import write_model


def model_of(path: Path) -> ModelValue:
    return ModelValue(path.name, str(path), "", "llama", "float32", 16, "f32", "relative")


def test_tokenizers_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_MAX_KEPT", 2)
    known = [model_of(write_model(tmp_path / name)) for name in ("a", "b", "c")]
    kept = models.TextModels()
    a, b = kept.get(known, "a"), kept.get(known, "b")
    assert kept.get(known, "a").tokenizer is a.tokenizer
    kept.get(known, "c")
    assert kept.get(known, "a").tokenizer is a.tokenizer
    assert kept.get(known, "b").tokenizer is not b.tokenizer


def test_models_that_are_not_to_be_had(tmp_path: Path) -> None:
    kept = models.TextModels()
    with pytest.raises(UnknownModel):
        kept.get([], "a")
    bare = tmp_path / "bare"
    bare.mkdir()
    for _ in range(2):
        with pytest.raises(BadRequest):
            kept.get([model_of(bare)], "bare")


def test_a_fault_is_told_by_its_place_and_not_by_what_it_says() -> None:
    with pytest.raises(ExceptionGroup) as group:
        raise ExceptionGroup("what was said", [ValueError("what was said")])
    assert place_of(group.value).startswith("ValueError")
    assert "said" not in place_of(group.value)
    with pytest.raises(KeyError) as plain:
        raise KeyError("what was said")
    assert place_of(plain.value).startswith(f"KeyError at {__file__}:")
