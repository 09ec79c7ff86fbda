"""The canonical class in an engine: the same bytes as recomputing, over the engine's pool."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glia.engine.canonical import CanonicalModel
from glia.engine.load import load_model
from glia.engine.loaded import LoadedModel
from glia.errors import ModelRefused
from glia.graph.profile import KvScheme
from glia.kv.compute import Piece
from glia.kv.dtypes import STORAGE_DTYPES
from tests.model_parts import payloads, run, same_bytes, save_tiny, seeded_tokens, settings

TOKENS = seeded_tokens(150, 96)
RAGGED = (1, 2, 3, 5, 17, 60, 1)
DECODED = (126, *[1] * 24)


def loaded(path: Path, scheme: KvScheme, wide_bytes: int = 1 << 30) -> LoadedModel:
    how = settings(dtype="float64", scheme=scheme, wide_bytes=wide_bytes, l0_bytes=8 << 20)
    return load_model(path, how)


@pytest.mark.parametrize("wide_bytes", [0, 1 << 30])
@pytest.mark.parametrize("scheme", [KvScheme.BF16, KvScheme.F16, KvScheme.F32])
def test_an_engine_gives_what_recomputing_gives(
    scheme: KvScheme, wide_bytes: int, tmp_path: Path
) -> None:
    path = save_tiny(tmp_path, "qwen3")
    model = loaded(path, scheme, wide_bytes)
    assert (model.numerics_class, model.decode_is_exact) == ("canonical", True)
    assert (model.dtype, model.storage) == (torch.float64, STORAGE_DTYPES[scheme])
    expected = CanonicalModel.open(path).recompute([], TOKENS, model.storage)
    for cuts in ((), RAGGED, DECODED):
        found = run(model, TOKENS, cuts)
        assert all(map(same_bytes, found.raw, expected.rows))
        assert torch.allclose(found.logits[-1], expected.logits[0].float(), rtol=0, atol=1e-6)


def test_an_engine_goes_on_behind_stored_windows(tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama")
    model = loaded(path, KvScheme.BF16)
    whole = run(model, TOKENS)
    table = list(range(10, 20))
    model.restore([p[:6] for p in payloads(model, whole.raw)], 0, table[:6])
    raw = model.new_raw(54)
    model.forward([Piece(TOKENS[96:], 96, table, raw)])
    for ours, theirs in zip(raw, whole.raw, strict=True):
        assert same_bytes(ours, theirs[96:])


def test_it_is_computed_on_the_cpu(tmp_path: Path) -> None:
    how = settings(dtype="float64", device="cuda")
    with pytest.raises(ModelRefused, match="on the CPU alone"):
        load_model(save_tiny(tmp_path, "llama"), how)
