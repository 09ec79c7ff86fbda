"""Every allowed model type, small and random: stock's logits, and bytes that do not depend
on how the tokens came. The same for head counts, dtypes, storage and block sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from glia.engine.families import ALLOWED, FUSED
from glia.engine.fused import FusedForward
from glia.engine.load import load_model
from glia.engine.loaded import LoadedModel
from glia.graph.profile import KvScheme, LayerShape
from glia.kv.compute import Piece
from glia.kv.dtypes import STORAGE_DTYPES
from tests.model_parts import (
    Run,
    load_tiny,
    payloads,
    run,
    same_bytes,
    save_tiny,
    seeded_tokens,
    settings,
    tiny_stock,
)

VOCAB = 96
TOKENS = seeded_tokens(150, VOCAB)
RAGGED = (1, 2, 3, 5, 17, 60, 1)
DECODED = (126, *[1] * 24)  # across a window's edge and a tile's
SCATTERED = (9, 4, 0, 11, 7, 2, 1, 8, 3, 10)
HEADS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "multi-head": {"num_key_value_heads": 4},
    "one-kv-head": {"num_key_value_heads": 1},
    "single-head": {"num_attention_heads": 1, "num_key_value_heads": 1},
}
EXTRA: dict[str, dict[str, Any]] = {"smollm3": {"no_rope_layers": [1, 0]}}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=[1, 16], ids=["gathered", "copied"])
def _max_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How slots that do not follow each other are read."""
    monkeypatch.setattr("glia.kv.pool._MAX_RUNS", request.param)


def assert_all_ways_agree(model: LoadedModel) -> Run:
    """Prefill, ragged pieces in scattered slots, decoding and a restored prefix."""
    whole = run(model, TOKENS)
    for cuts, table in ((RAGGED, SCATTERED), (DECODED, None)):
        other = run(model, TOKENS, cuts, table)
        assert other.same_raw(whole), cuts
        assert torch.equal(other.logits[-1], whole.logits[-1]), cuts
    for slots in ([2, 3, 4, 5, 6, 7, 8, 9, 1], [9, 1, 2, 3, 4, 5, 6, 7, 8]):
        assert_restored_continues(model, whole, slots)
    if model.block_size == 16:
        assert_together_is_alone(model, whole)
    return whole


def assert_together_is_alone(model: LoadedModel, whole: Run) -> None:
    """Three sequences side by side, each at another place: the bytes each has alone."""
    size = model.block_size
    starts, tables = (
        (129, 17, 64),
        ([4, 5, 6, 7, 8, 9, 0, 2, 1, 3], [10, 11, 13], [14, 15, 16, 18, 17]),
    )
    raws = []
    for start, table in zip(starts, tables, strict=True):
        slots = table[: -(-start // size)]
        raws.append(run(model, TOKENS[:start], table=slots).raw)
    for step in range(5):
        pieces, new = [], []
        for start, table in zip(starts, tables, strict=True):
            at = start + step
            new.append(model.new_raw(1))
            pieces.append(Piece(TOKENS[at : at + 1], at, table[: at // size + 1], new[-1]))
        logits = model.forward(pieces)
        assert logits.shape == (3, model.vocab_size)
        for start, raw in zip(starts, new, strict=True):
            for ours, theirs in zip(raw, whole.raw, strict=True):
                assert same_bytes(ours, theirs[start + step : start + step + 1])


def assert_restored_continues(model: LoadedModel, whole: Run, slots: list[int]) -> None:
    size = model.block_size
    windows = [p[: 128 // size] for p in payloads(model, whole.raw)]
    model.clear(range(model.num_slots))
    model.restore(windows, 0, slots[: 128 // size])
    raw = model.new_raw(22)
    logits = model.forward([Piece(TOKENS[128:], 128, [*slots[: 128 // size], 20, 21], raw)])[0]
    assert torch.equal(logits, whole.logits[-1])
    for layer, rows in enumerate(raw):
        assert same_bytes(rows, whole.raw[layer][128:])


@pytest.mark.spec(9, 12)
@pytest.mark.parametrize("model_type", sorted(ALLOWED))
def test_an_allowed_type_gives_stock_logits_at_every_position(
    model_type: str, tmp_path: Path
) -> None:
    extra = EXTRA.get(model_type, {})
    model = load_model(save_tiny(tmp_path, model_type, **extra), settings())
    with torch.inference_mode():
        stock = tiny_stock(model_type, **extra)(torch.tensor([TOKENS])).logits[0]
    stepped = run(model, TOKENS, [1] * len(TOKENS))
    assert (torch.stack(stepped.logits) - stock).abs().max() <= 1e-4
    assert model.decode_is_exact
    assert assert_all_ways_agree(model).same_raw(stepped)
    assert model.shapes == tuple(LayerShape(layer, 2, 16) for layer in range(2))
    assert model.vocab_size == VOCAB


@pytest.mark.spec(1, 12)
@pytest.mark.usefixtures("_max_runs")
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_head_counts_and_dtypes_agree_with_stock_and_with_themselves(
    heads: str, dtype: str, tmp_path: Path
) -> None:
    path = save_tiny(tmp_path, "llama", **HEADS[heads])
    scheme = {"float32": KvScheme.F32, "bfloat16": KvScheme.BF16, "float16": KvScheme.F16}[dtype]
    model = load_model(path, settings(dtype=dtype, scheme=scheme))
    assert model.decode_is_exact
    assert_all_ways_agree(model)


@pytest.mark.spec(3, 12)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_65536_byte_shape(dtype: str, tmp_path: Path) -> None:
    shape = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
    path = save_tiny(tmp_path, "llama", **shape)
    model = load_model(path, settings(dtype=dtype, scheme=KvScheme.F16, l0_bytes=32 << 20))
    whole = assert_all_ways_agree(model)
    block = payloads(model, whole.raw)[0][0]
    assert block.shape == (16, 8, 256)
    assert block.nbytes == 65_536


@pytest.mark.parametrize("model_type", sorted(FUSED))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_fused_path_gives_the_bytes_of_the_general_one(
    model_type: str, dtype: str, tmp_path: Path
) -> None:
    # rows of 128: whole vectors, so that activations of strided rows have the same bits
    path = save_tiny(tmp_path, model_type, intermediate_size=128)
    scheme = KvScheme.F32 if dtype == "float32" else KvScheme.BF16
    fused = load_model(path, settings(dtype=dtype, scheme=scheme))
    general = load_model(path, settings(dtype=dtype, scheme=scheme, allow_fused=False))
    assert isinstance(fused._forward, FusedForward)
    assert not isinstance(general._forward, FusedForward)
    assert fused.numerics_class == general.numerics_class
    for cuts in ((), RAGGED, DECODED):
        ours, theirs = run(fused, TOKENS, cuts), run(general, TOKENS, cuts)
        assert ours.same_raw(theirs)
        assert all(torch.equal(a, b) for a, b in zip(ours.logits, theirs.logits, strict=True))


def test_where_the_fused_path_differs_the_general_one_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_tiny(tmp_path, "llama", intermediate_size=128)
    general = load_model(path, settings(allow_fused=False))
    monkeypatch.setattr("glia.engine.fused._Norm.__call__", lambda norm, x: norm.weight * x)
    model = load_model(path, settings())
    assert not isinstance(model._forward, FusedForward)
    assert run(model, TOKENS).same_raw(run(general, TOKENS))


@pytest.mark.spec(12)
@pytest.mark.parametrize("model_type", ["llama", "gemma", "starcoder2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_do_not_depend_on_threads(model_type: str, dtype: str, tmp_path: Path) -> None:
    # 2,432 elements a row: three threads would cut vectors in two
    shape = {"hidden_size": 256, "head_dim": 64, "intermediate_size": 2432}
    scheme = KvScheme.F32 if dtype == "float32" else KvScheme.BF16
    path = save_tiny(tmp_path, model_type, **shape)
    model = load_model(path, settings(dtype=dtype, scheme=scheme, l0_bytes=16 << 20))
    tokens = seeded_tokens(300, VOCAB)
    whole = run(model, tokens)
    for num_threads in (2, 3, 5):
        torch.set_num_threads(num_threads)
        assert run(model, tokens).same_raw(whole), num_threads
        assert run(model, tokens, (200, 1, 1, 77)).same_raw(whole), num_threads


@pytest.mark.spec(8, 9)
def test_k_is_stored_unrotated_and_one_block_serves_two_positions(tmp_path: Path) -> None:
    model = load_tiny(tmp_path, "llama")
    again = TOKENS[:16] * 2
    twice = run(model, again)
    # layer 0 sees embeddings alone: equal tokens have equal K and V at any position
    first, second = payloads(model, twice.raw)[0]
    assert same_bytes(first, second)
    # the block of positions 0..15, restored at 16..31, rotates to what was computed there
    expected = [tuple(part.clone() for part in part_of(model, layer, 16)) for layer in range(1)]
    model.clear(range(4))
    model.restore([p[:1] for p in payloads(model, twice.raw)], 16, [1])
    keys, values = part_of(model, 0, 16)
    assert same_bytes(keys, expected[0][0])
    assert same_bytes(values, expected[0][1])
    model.restore([p[:1] for p in payloads(model, twice.raw)], 0, [1])
    assert not same_bytes(part_of(model, 0, 16)[0], expected[0][0])


def part_of(model: LoadedModel, layer: int, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated K and V of 16 rows of the pool from `first` on."""
    keys, values = model._pool.view(layer, model._pool.dispatch(0, 64, [0, 1, 2, 3]), 128)
    return keys[:, first : first + 16], values[:, first : first + 16]


@pytest.mark.spec(9)
def test_restored_keys_have_the_bits_that_prefill_wrote(tmp_path: Path) -> None:
    model = load_tiny(tmp_path, "qwen3", dtype="bfloat16", scheme=KvScheme.BF16)
    whole = run(model, TOKENS[:64])
    layers = range(len(model.shapes))
    where = model._pool.dispatch(0, 64, [0, 1, 2, 3])
    written = [
        [t[:, :64].clone() for t in model._pool.view(layer, where, where.key_length)]
        for layer in layers
    ]
    model.clear(range(4))
    strided = [torch.stack((p, p), 1)[:, 0] for p in payloads(model, whole.raw)]
    model.restore(strided, 0, [0, 1, 2, 3])
    for layer in layers:
        for ours, theirs in zip(
            model._pool.view(layer, where, where.key_length), written[layer], strict=True
        ):
            assert same_bytes(ours[:, :64], theirs)


@pytest.mark.parametrize(
    ("dtype", "own", "storage"),
    [
        ("float32", KvScheme.F32, KvScheme.F16),
        ("float32", KvScheme.F32, KvScheme.BF16),
        ("float16", KvScheme.F16, KvScheme.BF16),
    ],
)
def test_rounding_to_the_storage_dtype_comes_before_attention(
    dtype: str, own: KvScheme, storage: KvScheme, tmp_path: Path
) -> None:
    path = save_tiny(tmp_path, "llama")
    plain = load_model(path, settings(dtype=dtype, scheme=own))
    rounded = load_model(path, settings(dtype=dtype, scheme=storage))
    assert plain.numerics_class != rounded.numerics_class
    whole = assert_all_ways_agree(rounded)
    other = run(plain, TOKENS)
    assert not torch.equal(whole.logits[-1], other.logits[-1])
    stored = whole.raw[0].dtype
    assert stored == STORAGE_DTYPES[storage]
    assert torch.equal(whole.raw[0], other.raw[0].to(stored))  # nothing attended yet


@pytest.mark.parametrize("block_size", [16, 32, 48, 64])
def test_bytes_do_not_depend_on_block_size(block_size: int, tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama")
    model = load_model(path, settings(block_size=block_size))
    reference = load_model(path, settings())
    expected = run(reference, TOKENS)
    assert run(model, TOKENS, RAGGED).same_raw(expected)
    assert run(model, TOKENS, DECODED, [5, 3, 9, 0, 2, 1, 4, 6, 7, 8]).same_raw(expected)


@pytest.mark.spec(12)
def test_what_other_sequences_left_in_the_pool_changes_no_bit(tmp_path: Path) -> None:
    model = load_tiny(tmp_path, "llama")
    alone = run(model, TOKENS, DECODED)
    for seed in (1, 2):
        noise = seeded_tokens(16 * 20, VOCAB, seed)
        run(model, noise, table=list(reversed(range(20))))
        assert run(model, TOKENS, DECODED).same_raw(alone)
        assert run(model, TOKENS, RAGGED, SCATTERED).same_raw(alone)
