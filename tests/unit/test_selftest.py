"""The self-test at load fails where it should, and says by how much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from glia.engine import huggingface, load
from glia.engine.load import load_model
from glia.errors import ModelRefused, PoolExhausted
from glia.graph.profile import KvScheme
from glia.kv.attention import LayerHeads
from glia.kv.rotary import Rotary
from tests.model_parts import save_tiny, settings

DTYPES = {
    "float32": KvScheme.F32,
    "bfloat16": KvScheme.BF16,
    "float16": KvScheme.F16,
}


def spoil(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Give attention wrong facts about every layer."""

    def wrong(*args: Any) -> list[LayerHeads]:
        return [replace(heads, **changes) for heads in huggingface.layer_heads(*args)]

    monkeypatch.setattr(load, "layer_heads", wrong)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_model_that_is_computed_rightly_is_accepted(dtype: str, tmp_path: Path) -> None:
    model = load_model(save_tiny(tmp_path, "llama"), settings(dtype=dtype, scheme=DTYPES[dtype]))
    assert model.decode_is_exact
    assert model.tokens_per_s > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_without_positions_is_refused(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, rotary=None)
    with pytest.raises(ModelRefused, match="differ from stock attention by"):
        load_model(save_tiny(tmp_path, "llama"), settings(dtype=dtype, scheme=DTYPES[dtype]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_another_scale_is_refused(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, scale=1.0)
    with pytest.raises(ModelRefused, match="differ from stock attention by"):
        load_model(save_tiny(tmp_path, "llama"), settings(dtype=dtype, scheme=DTYPES[dtype]))


def test_logits_that_are_not_finite_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, rotary=Rotary(torch.full((512, 16), float("nan")), torch.zeros(512, 16)))
    with pytest.raises(ModelRefused, match="nan"):
        load_model(save_tiny(tmp_path, "llama"), settings())


def test_decoding_that_differs_from_prefill_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a multi-head model with rows as they come: a lone query is one row
    path = save_tiny(tmp_path, "llama", num_key_value_heads=4)
    monkeypatch.setattr("glia.kv.attention.ROW_MULTIPLE", 1)
    model = load_model(path, settings())
    assert not model.decode_is_exact


def test_the_slots_it_used_are_left_zero(tmp_path: Path) -> None:
    model = load_model(save_tiny(tmp_path, "llama"), settings())
    assert all(not tensor.any() for tensor in (*model._pool._keys, *model._pool._values))


def test_progress_goes_from_nothing_to_all(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    load_model(save_tiny(tmp_path, "llama"), settings(), lambda *what: told.append(what))
    parts = [part for _, part in told]
    assert parts == sorted(parts)
    assert (parts[0], parts[-1]) == (0.0, 1.0)
    assert len({what for what, _ in told}) == len(told)


@pytest.mark.parametrize("block_size", [16, 64, 256])
def test_a_short_context_and_a_small_pool_are_enough(block_size: int, tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama", max_position_embeddings=24)
    model = load_model(path, settings(block_size=block_size, l0_bytes=1 << 20))
    assert model.decode_is_exact


def test_a_context_too_short_to_be_tested_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelRefused, match="context of 8 tokens"):
        load_model(save_tiny(tmp_path, "llama", max_position_embeddings=8), settings())


def test_a_pool_that_holds_no_sequence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PoolExhausted, match="windows of this model") as caught:
        load_model(save_tiny(tmp_path, "llama"), settings(l0_bytes=100_000))
    assert "size" in (caught.value.hint or "")
