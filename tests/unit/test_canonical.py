"""K and V of the canonical class: float64 throughout, rounded at once, however they are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from glia.engine.canonical import CanonicalModel, Recomputed
from glia.engine.families import ALLOWED
from glia.engine.frequencies import WideRotary
from glia.engine.load import load_model
from glia.engine.wide import kept_bytes, widen
from glia.errors import ModelRefused, PromptError
from tests.model_parts import run, same_bytes, save_tiny, seeded_tokens, settings, tiny_stock
from tests.unit.test_adapter import TARGET, matrices, save_adapter
from tests.wide_stock import wide_logits

VOCAB = 96
TOKENS = seeded_tokens(150, VOCAB)
STORAGE = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
EXTRA: dict[str, dict[str, Any]] = {"smollm3": {"no_rope_layers": [1, 0]}}
ROPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 128},
}


def rope(kind: str, **changes: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10000.0, **ROPES[kind], **changes}


def opened(path: Path, model_type: str = "llama", **changes: Any) -> CanonicalModel:
    return CanonicalModel.open(save_tiny(path, model_type, **changes), most_bytes=1 << 30)


def assert_same(found: Recomputed, expected: Recomputed, first: int = 0) -> None:
    for ours, theirs in zip(found.rows, expected.rows, strict=True):
        assert same_bytes(ours, theirs[first:])


@pytest.mark.parametrize("model_type", sorted(ALLOWED))
def test_every_part_of_every_type_is_computed_in_float64(model_type: str, tmp_path: Path) -> None:
    extra = EXTRA.get(model_type, {})
    model = opened(tmp_path, model_type, **extra)
    ours = model.recompute([], TOKENS, torch.float64, all_logits=True).logits
    stock = tiny_stock(model_type, **extra)
    half = WideRotary(stock)._frequencies[:8]
    theirs = wide_logits(stock, TOKENS, half)
    assert ours.dtype == torch.float64
    assert (ours - theirs).abs().max() < 1e-12 * theirs.abs().max()


@pytest.mark.parametrize("kind", ROPES)
def test_rotates_by_the_frequencies_of_the_model(kind: str, tmp_path: Path) -> None:
    parameters = rope(kind)
    stock = tiny_stock("llama", rope_parameters=parameters)
    ours = WideRotary(stock).tables(512)
    cos, sin = stock.model.rotary_emb(torch.zeros(1), torch.arange(512)[None])
    assert (ours.cos - cos[0]).abs().max() < 2e-4  # what f32 leaves of an angle of 511
    assert (ours.signed_sin[:, 8:] - sin[0, :, 8:]).abs().max() < 2e-4
    frequencies = WideRotary(stock)._frequencies[:8]
    model = opened(tmp_path, rope_parameters=parameters)
    found = model.recompute([], TOKENS, torch.float64).logits[0]
    theirs = wide_logits(stock, TOKENS, frequencies)[-1]
    assert (found - theirs).abs().max() < 1e-12 * theirs.abs().max()


def test_frequencies_that_are_not_the_models_are_refused() -> None:
    stock = tiny_stock("llama")
    stock.model.rotary_emb.inv_freq *= 1.001
    with pytest.raises(ModelRefused, match="not known in float64"):
        WideRotary(stock)


def test_a_module_that_is_not_known_is_refused() -> None:
    stock = tiny_stock("llama")
    stock.model.layers[0].mlp.gate_proj = nn.Bilinear(2, 2, 2)
    with pytest.raises(ModelRefused, match="Bilinear is not known"):
        widen(stock, keep=True)


@pytest.mark.parametrize("name", STORAGE)
def test_what_is_rounded_is_what_was_computed(name: str, tmp_path: Path) -> None:
    found = opened(tmp_path).recompute([], TOKENS, STORAGE[name], unrounded=True)
    assert found.unrounded is not None
    for rounded, wide in zip(found.rows, found.unrounded, strict=True):
        assert rounded.shape == wide.shape == (150, 2, 32)
        assert same_bytes(rounded, wide.to(STORAGE[name]))
        assert not torch.equal(rounded.double(), wide)


@pytest.mark.parametrize("name", STORAGE)
def test_attention_reads_what_was_rounded(name: str, tmp_path: Path) -> None:
    """Layer 1 depends on the K and V of layer 0: exact ones would give another."""
    model = opened(tmp_path)
    rounded = model.recompute([], TOKENS, STORAGE[name], unrounded=True).unrounded
    exact = model.recompute([], TOKENS, torch.float64).rows
    assert rounded is not None
    assert torch.equal(rounded[0], exact[0])
    assert not torch.equal(rounded[1], exact[1])


@pytest.mark.parametrize("piece", [1, 7, 16, 128])
@pytest.mark.parametrize("name", STORAGE)
def test_bytes_do_not_depend_on_how_tokens_are_cut(name: str, piece: int, tmp_path: Path) -> None:
    model = opened(tmp_path)
    whole = model.recompute([], TOKENS, STORAGE[name], all_logits=True)
    cut = model.recompute([], TOKENS, STORAGE[name], piece_tokens=piece, all_logits=True)
    assert_same(cut, whole)
    assert (cut.logits - whole.logits).abs().max() < 1e-12


@pytest.mark.parametrize("name", STORAGE)
def test_goes_on_behind_stored_windows(name: str, tmp_path: Path) -> None:
    model = opened(tmp_path)
    whole = model.recompute([], TOKENS, STORAGE[name])
    apart = [torch.zeros(6, 16, 2, 80, dtype=STORAGE[name])[..., 8:40] for _ in whole.rows]
    for windows, rows in zip(apart, whole.rows, strict=True):  # views, as in an arena
        windows.copy_(rows[:96].view(6, 16, 2, 32))
    behind = model.recompute(apart, TOKENS[96:], STORAGE[name])
    assert_same(behind, whole, first=96)
    assert (behind.logits - whole.logits).abs().max() < 1e-12
    one = model.recompute(apart, TOKENS[96:112], STORAGE[name])
    for window, rows in zip(one.rows, whole.rows, strict=True):
        assert same_bytes(window, rows[96:112])


def test_another_window_before_gives_another_window(tmp_path: Path) -> None:
    model = opened(tmp_path)
    whole = model.recompute([], TOKENS, torch.bfloat16)
    before = [rows[:16].clone() for rows in whole.rows]
    before[0][3, 1, 5] += 1.0
    window = model.recompute(before, TOKENS[16:32], torch.bfloat16)
    assert torch.equal(window.rows[0], whole.rows[0][16:32])  # depends on tokens alone
    assert not torch.equal(window.rows[1], whole.rows[1][16:32])


@pytest.mark.parametrize("stored", STORAGE)
def test_weights_that_are_widened_each_time_give_the_same(stored: str, tmp_path: Path) -> None:
    tiny_stock("qwen2").to(STORAGE[stored]).save_pretrained(tmp_path)
    kept = CanonicalModel.open(tmp_path, most_bytes=1 << 30).recompute([], TOKENS, torch.float32)
    widened = CanonicalModel.open(tmp_path).recompute([], TOKENS, torch.float32)
    assert_same(widened, kept)
    assert torch.equal(widened.logits, kept.logits)


def test_weights_are_kept_where_they_fit(tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama")
    size = kept_bytes(tiny_stock("llama"))
    assert size == 8 * (2 * (64 * 64 * 2 + 32 * 64 * 2 + 64 * 112 * 3) + 96 * 64)
    for most, dtype in ((size - 1, torch.float32), (size, torch.float64)):
        model = CanonicalModel.open(path, most_bytes=most)
        assert model._model.lm_head.weight.dtype == dtype


def test_depends_on_the_files_and_not_on_a_config_that_says_another_dtype(tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama")
    expected = CanonicalModel.open(path).recompute([], TOKENS, torch.float32)
    config = (path / "config.json").read_text()
    assert '"float32"' in config
    (path / "config.json").write_text(config.replace('"float32"', '"bfloat16"'))
    assert_same(CanonicalModel.open(path).recompute([], TOKENS, torch.float32), expected)


def test_is_near_the_native_class(tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama")
    native = run(load_model(path, settings()), TOKENS)
    found = CanonicalModel.open(path).recompute([], TOKENS, torch.float32)
    for ours, theirs in zip(found.rows, native.raw, strict=True):
        assert (ours - theirs).norm() < 2e-6 * theirs.norm()


def test_adapters_are_merged_in_float64(tmp_path: Path) -> None:
    path = save_tiny(tmp_path / "model", "llama")
    model = CanonicalModel.open(path, [save_adapter(tmp_path / "lora")])
    stock = tiny_stock("llama")
    frequencies = WideRotary(stock)._frequencies[:8]
    a, b = matrices().values()
    linear = stock.double().get_submodule(TARGET)
    with torch.no_grad():
        linear.weight += 2.0 * b.double() @ a.double()
    theirs = wide_logits(stock, TOKENS, frequencies)[-1]
    ours = model.recompute([], TOKENS, torch.float64).logits[0]
    assert (ours - theirs).abs().max() < 1e-12 * theirs.abs().max()


@pytest.mark.parametrize(
    ("tokens", "what"),
    [([], "no token"), ([VOCAB], "vocabulary of 96"), ([-1], "vocabulary"), ([1] * 513, "past")],
)
def test_tokens_that_cannot_be_computed_are_refused(
    tokens: list[int], what: str, tmp_path: Path
) -> None:
    with pytest.raises(PromptError, match=what):
        opened(tmp_path).recompute([], tokens, torch.bfloat16)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    opened(tmp_path).recompute(
        [], TOKENS, torch.bfloat16, piece_tokens=64, on_progress=lambda *at: told.append(at)
    )
    assert told == [(64, 150), (128, 150), (150, 150)]
