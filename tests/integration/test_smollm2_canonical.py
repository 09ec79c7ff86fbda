"""The canonical class on the real small model: one answer, however its tokens come."""

from __future__ import annotations

import pytest
import torch

from glia.engine.canonical import CanonicalModel
from tests.model_parts import SMOLLM2, same_bytes, seeded_tokens

STORAGE = {"f32": torch.float32, "bf16": torch.bfloat16}


@pytest.fixture(scope="module")
def model() -> CanonicalModel:
    if not (SMOLLM2 / "model.safetensors").exists():
        pytest.fail("models/smollm2 is missing: run make setup")
    return CanonicalModel.open(SMOLLM2)


@pytest.mark.parametrize("name", STORAGE)
def test_one_window_is_computed_again_from_those_before(name: str, model: CanonicalModel) -> None:
    tokens = seeded_tokens(48, model.vocab_size)
    whole = model.recompute([], tokens, STORAGE[name])
    before = [rows[:32].view(2, 16, 3, 128) for rows in whole.rows]
    again = model.recompute(before, tokens[32:], STORAGE[name], piece_tokens=5)
    for window, rows in zip(again.rows, whole.rows, strict=True):
        assert same_bytes(window, rows[32:])
