"""SmolLM2: raw K and V have the same bytes however the tokens came, and f32 logits are
those of stock transformers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM

from glia.engine.fused import FusedForward
from glia.engine.load import load_model
from glia.engine.loaded import LoadedModel
from glia.graph.profile import KvScheme
from glia.kv.compute import Piece
from glia.model.tokenizer import Tokenizer
from tests.model_parts import SMOLLM2, payloads, run, same_bytes, settings

LENGTHS = (15, 16, 17, 255, 256, 257)
TEXT = (
    "The council met in the old library because the hall was flooded again. {0} people came, "
    "more than in {1}; they spoke of bridges, of rent, of the river and of who should pay. "
)
SCHEMES = {"float32": KvScheme.F32, "bfloat16": KvScheme.BF16}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def loaded(dtype: str) -> LoadedModel:
    if not (SMOLLM2 / "model.safetensors").exists():
        pytest.fail("models/smollm2 is missing: run make setup")
    return load_model(SMOLLM2, settings(dtype=dtype, scheme=SCHEMES[dtype], l0_bytes=64 << 20))


@cache
def text() -> list[int]:
    words = "".join(TEXT.format(number, number + 40) for number in range(12))
    tokens = Tokenizer.load(SMOLLM2).encode(words)
    assert len(tokens) > max(LENGTHS)
    return tokens


@pytest.mark.parametrize("dtype", SCHEMES)
def test_it_loads_on_the_fast_path_and_decoding_is_exact(dtype: str) -> None:
    model = loaded(dtype)
    assert isinstance(model._forward, FusedForward)
    assert model.decode_is_exact
    assert len(model.shapes) == 30
    assert model.context_tokens == 8192
    assert model.slot_bytes == 16 * 30 * 3 * 128 * (4 if dtype == "float32" else 2)


@pytest.mark.spec(12)
@pytest.mark.parametrize("dtype", SCHEMES)
@pytest.mark.parametrize("length", LENGTHS)
def test_prefill_ragged_and_decoded_windows_have_equal_bytes(dtype: str, length: int) -> None:
    model, tokens = loaded(dtype), text()[:length]
    whole = run(model, tokens)
    ragged = [1, 2, 9] if length < 64 else [1, 2, 3, 77, 45, 1]
    num_slots = -(-length // 16)
    backwards = list(reversed(range(3, 3 + num_slots)))
    decoded = [length - 12, *[1] * 11]
    for cuts, table in ((ragged, backwards), (decoded, None)):
        other = run(model, tokens, cuts, table)
        assert other.same_raw(whole), cuts
        assert torch.equal(other.logits[-1], whole.logits[-1]), cuts


@pytest.mark.spec(12)
@pytest.mark.parametrize("dtype", SCHEMES)
def test_a_longer_suffix_changes_no_byte_of_the_prefix(dtype: str) -> None:
    model = loaded(dtype)
    longest = run(model, text()[:257])
    for length in (16, 129, 256):
        shorter = run(model, text()[:length])
        for ours, theirs in zip(shorter.raw, longest.raw, strict=True):
            assert same_bytes(ours, theirs[:length])


@pytest.mark.spec(12)
@pytest.mark.parametrize("dtype", SCHEMES)
def test_the_general_path_gives_the_same_bytes(dtype: str) -> None:
    how = settings(dtype=dtype, scheme=SCHEMES[dtype], l0_bytes=64 << 20, allow_fused=False)
    general = load_model(SMOLLM2, how)
    assert not isinstance(general._forward, FusedForward)
    assert general.numerics_class == loaded(dtype).numerics_class
    tokens = text()[:140]
    for cuts in ((), (100, *[1] * 6, 29)):
        ours, theirs = run(general, tokens, cuts), run(loaded(dtype), tokens, cuts)
        assert ours.same_raw(theirs)
        assert torch.equal(ours.logits[-1], theirs.logits[-1])


@pytest.mark.spec(9)
def test_f32_logits_are_within_1e_4_of_stock() -> None:
    stock = AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32)
    tokens = text()[:160]
    with torch.inference_mode():
        expected = stock(torch.tensor([tokens])).logits[0]
    # prefill gives the logits of a piece's last token only
    pieces = run(loaded("float32"), tokens, [1] * 16 + [6] * 24)
    ends = [*range(1, 17), *range(22, 161, 6)]
    for end, logits in zip(ends, pieces.logits, strict=True):
        assert (logits - expected[end - 1]).abs().max() <= 1e-4, end
        assert logits.argmax() == expected[end - 1].argmax(), end


@pytest.mark.spec(8, 9)
@pytest.mark.parametrize("dtype", SCHEMES)
def test_one_stored_block_serves_two_position_anchors(dtype: str) -> None:
    model, tokens = loaded(dtype), text()[:16]
    first = run(model, tokens)
    moved = run(model, [*text()[100:116], *tokens])
    # layer 0 has seen nothing but the tokens: the block is the same one at 0 and at 16
    block = payloads(model, first.raw)[0][0]
    assert same_bytes(block, payloads(model, moved.raw)[0][1])
    where = model._pool.dispatch(0, 32, [0, 1])
    computed = [part[:, 16:32].clone() for part in model._pool.view(0, where, where.key_length)]
    model.clear([1])
    model.restore([p[1:] for p in payloads(model, moved.raw)], 16, [1])
    restored = [part[:, 16:32] for part in model._pool.view(0, where, where.key_length)]
    assert all(same_bytes(a, b) for a, b in zip(restored, computed, strict=True))
    model.restore([p[1:] for p in payloads(model, moved.raw)], 0, [0])
    elsewhere = [part[:, :16] for part in model._pool.view(0, where, where.key_length)]
    assert not same_bytes(elsewhere[0], computed[0])  # K is rotated for its anchor
    assert same_bytes(elsewhere[1], computed[1])  # V is not


@pytest.mark.spec(12)
@pytest.mark.parametrize("dtype", SCHEMES)
def test_a_restored_prefix_continues_with_the_same_bytes(dtype: str) -> None:
    model, tokens = loaded(dtype), text()[:150]
    whole = run(model, tokens)
    windows = [p[:8] for p in payloads(model, whole.raw)]
    for slots in (list(range(20, 28)), [40, 3, 5, 4, 9, 8, 7, 30]):
        model.clear(range(model.num_slots))
        model.restore(windows, 0, slots)
        raw = model.new_raw(22)
        logits = model.forward([Piece(tokens[128:], 128, [*slots, 1, 2], raw)])[0]
        assert torch.equal(logits, whole.logits[-1])
        assert all(same_bytes(a, b[128:]) for a, b in zip(raw, whole.raw, strict=True))
