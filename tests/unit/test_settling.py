"""CHECKLIST 13: ids follow from values alone, and the CPU reference settles what is disputed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from glia.engine.canonical import CanonicalModel
from glia.engine.load import load_model
from glia.engine.residency import Residency
from glia.engine.sampler import Sampler
from glia.engine.sealing import Sealer
from glia.engine.sequence import Request, Sequence
from glia.engine.settling import EPSILON, Settled, settle
from glia.errors import PromptError
from glia.graph.ids import WindowId
from glia.graph.profile import KvScheme, PositionMode, Profile
from glia.kv.dtypes import STORAGE_DTYPES
from tests.engine_parts import make_memory
from tests.model_parts import run, save_tiny, seeded_tokens, settings

TOKENS = seeded_tokens(64, 96)
STORAGE = {scheme.word: STORAGE_DTYPES[scheme] for scheme in KvScheme}


def windows(rows: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return [layer[:64].view(4, 16, *layer.shape[1:]) for layer in rows]


def last_of(model: CanonicalModel, rows: list[torch.Tensor]) -> Settled:
    return settle(model, [r[:3] for r in rows], TOKENS[48:], [r[3:] for r in rows])


@pytest.mark.spec(13)
@pytest.mark.parametrize("name", STORAGE)
def test_what_is_canonical_is_found_to_be(name: str, tmp_path: Path) -> None:
    model = CanonicalModel.open(save_tiny(tmp_path, "llama"))
    rows = windows(model.recompute([], TOKENS, STORAGE[name]).rows)
    found = last_of(model, rows)
    assert found.is_canonical
    assert (found.num_elements, found.num_different) == (2 * 16 * 2 * 32, 0)
    assert 0.4 < found.most_ulp <= 0.5


@pytest.mark.spec(13)
@pytest.mark.parametrize("name", STORAGE)
def test_one_unit_in_the_last_place_is_found(name: str, tmp_path: Path) -> None:
    model = CanonicalModel.open(save_tiny(tmp_path, "llama"))
    rows = windows(model.recompute([], TOKENS, STORAGE[name]).rows)
    for layer in (0, 1):
        altered = [each.clone() for each in rows]
        value = altered[layer][3, 5, 1, 7]
        altered[layer][3, 5, 1, 7] = torch.nextafter(value, value + 1)
        found = last_of(model, altered)
        assert not found.is_canonical
        assert found.layer == 1  # what was computed from the other value does not fit it
        if layer == 0:
            altered[1][3] = computed_from(model, altered)
            found = last_of(model, altered)
        assert not found.is_canonical
        assert (found.num_different, found.layer) == (1, layer)
        assert 0.5 + EPSILON < found.most_ulp <= 1.5


def computed_from(model: CanonicalModel, rows: list[torch.Tensor]) -> torch.Tensor:
    """The last window's K and V of layer 1, as follow from what it has in layer 0."""
    claimed = [r[3] for r in rows]
    before = [r[:3] for r in rows]
    storage = rows[0].dtype
    return model.recompute(before, TOKENS[48:], storage, claimed=claimed).rows[1]


@pytest.mark.spec(13)
@pytest.mark.parametrize("name", STORAGE)
def test_what_lies_in_the_middle_is_canonical_either_way(name: str, tmp_path: Path) -> None:
    """Another machine's sums may end on the other side."""
    storage = STORAGE[name]
    model = CanonicalModel.open(save_tiny(tmp_path, "llama"))
    weight = model._model.model.layers[1].self_attn.v_proj.weight
    whole = model.recompute([], TOKENS, storage, unrounded=True)
    assert whole.unrounded is not None
    value = float(whole.unrounded[1][50, 0, 16])  # V of the first head's first dimension
    rounded = torch.tensor(value, dtype=storage)
    above = torch.nextafter(rounded, rounded + 1)
    middle = (float(rounded) + float(above)) / 2
    model._model.model.layers[1].self_attn.v_proj.weight = weight.double()
    model._model.model.layers[1].self_attn.v_proj.weight[0] *= middle / value
    rows = windows(model.recompute([], TOKENS, storage).rows)
    for side in (rounded, above):
        claimed = [each.clone() for each in rows]
        claimed[1][3, 2, 0, 16] = side
        found = last_of(model, claimed)
        assert found.is_canonical
        assert abs(found.most_ulp - 0.5) < EPSILON


@pytest.mark.spec(13)
def test_what_another_class_computed_is_near_and_not_canonical(tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama")
    for scheme, dtype in ((KvScheme.F32, "float32"), (KvScheme.BF16, "bfloat16")):
        native = run(load_model(path, settings(dtype=dtype, scheme=scheme)), TOKENS)
        found = last_of(CanonicalModel.open(path), windows(tuple(native.raw)))
        assert not found.is_canonical
        assert found.num_different > 20


def test_what_is_not_finite_is_not_canonical(tmp_path: Path) -> None:
    model = CanonicalModel.open(save_tiny(tmp_path, "llama"))
    rows = windows(model.recompute([], TOKENS, torch.bfloat16).rows)
    rows[1][3, 0, 0, 0] = float("nan")
    assert not last_of(model, rows).is_canonical
    with pytest.raises(PromptError):
        settle(model, [], [], rows)


def strided(layer: torch.Tensor, how: str) -> torch.Tensor:
    """The same numbers, otherwise in memory: [W, S, G, 2 * D]."""
    if how == "by head":
        return layer.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    if how == "backwards":
        return layer.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    if how == "every second":
        wide = torch.full((*layer.shape[:-1], 2 * layer.shape[-1]), float("nan"))
        wide[..., 1::2] = layer
        return wide[..., 1::2]
    return layer


@pytest.mark.spec(13)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("how", ["by head", "backwards", "every second"])
def test_ids_of_equal_tensors_are_equal_whatever_their_strides(
    how: str, device: str, tmp_path: Path
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no such device here")
    model = CanonicalModel.open(save_tiny(tmp_path, "llama"))
    rows = windows(model.recompute([], TOKENS, torch.float32).rows)
    profile = Profile(16, KvScheme.F32, PositionMode.RELATIVE, model.shapes)
    moved = [strided(layer.to(device), how) for layer in rows]
    assert moved[0].stride() != rows[0].stride()
    assert sealed(profile, moved) == sealed(profile, rows)
    other = [layer.clone() for layer in rows]
    other[1][2, 3, 1, 4] += 1
    assert sealed(profile, other)[:2] == sealed(profile, rows)[:2]
    assert sealed(profile, other)[2] != sealed(profile, rows)[2]


def sealed(profile: Profile, layers: list[torch.Tensor]) -> list[WindowId]:
    """The names that the real sealer gives, through staging and the block encoder."""
    memory = make_memory(profile, "canonical")
    residency = Residency(8, profile.window_payload_bytes)
    sequence = Sequence(
        1, Request(tuple(TOKENS), 1), 65, 5, Sampler(Request(tuple(TOKENS), 1).sampling), TOKENS
    )
    sequence.table = residency.take(5)
    sealer = Sealer(memory, residency, profile, 8)
    sealer.seal(sequence, layers)
    sealer.drain()
    return sequence.chain
