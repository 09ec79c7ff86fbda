"""Checks and audits of windows on small real models: what is honest passes, the rest does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from glia.engine.canonical import CanonicalModel
from glia.engine.examining import Examiner
from glia.engine.families import ALLOWED
from glia.engine.limits import Limits, calibrated, worst_of
from glia.engine.load import load_model
from glia.errors import ModelRefused
from glia.graph.profile import KvScheme, PositionMode, Profile
from tests.model_parts import load_tiny, payloads, run, same_bytes, save_tiny, settings

TOKENS = [3 + 7 * at % 90 for at in range(96)]
SIZE = 16
Windows = list[torch.Tensor]


@pytest.mark.parametrize("model_type", sorted(ALLOWED))
def test_layer_zero_of_every_family_is_that_of_the_whole_model(
    tmp_path: Path, model_type: str
) -> None:
    model = load_tiny(tmp_path / "m", model_type)
    first = run(model, TOKENS).raw[0]
    assert same_bytes(model.layer_zero(TOKENS), first)
    assert same_bytes(model.layer_zero(TOKENS[:5]), first[:5])
    reference = CanonicalModel.open(tmp_path / "m")
    whole = reference.recompute([], TOKENS, torch.float32)
    assert same_bytes(reference.layer_zero(TOKENS).float(), whole.rows[0])


class Rig:
    """A model, what it gives for TOKENS, and an examiner of it."""

    def __init__(self, path: Path, dtype: str = "float32") -> None:
        scheme = KvScheme.F32 if dtype == "float32" else KvScheme.BF16
        save_tiny(path, "llama", num_hidden_layers=4)
        self.model = load_model(path, settings(dtype=dtype, scheme=scheme))
        self.profile = Profile(SIZE, scheme, PositionMode.RELATIVE, self.model.shapes)
        self.windows = payloads(self.model, run(self.model, TOKENS).raw)
        self._open = partial(CanonicalModel.open, path)

    def examiner(self, limits: Limits | None = None) -> Examiner:
        return Examiner(self.model.layer_zero, self._open, self.profile, limits)

    def check(
        self, windows: Sequence[torch.Tensor], examiner: Examiner, *, canonical: bool = False
    ) -> list[str]:
        found = examiner.check(TOKENS, windows, [canonical] * len(windows[0]))
        return [each.verdict for each in found]

    def audit(
        self, windows: Sequence[torch.Tensor], at: int, examiner: Examiner, *, canonical: bool
    ) -> str:
        finding = examiner.audit(
            [layer[:at] for layer in windows],
            [layer[at] for layer in windows],
            TOKENS[at * SIZE : (at + 1) * SIZE],
            is_canonical=canonical,
        )
        return finding.verdict

    def measured(self) -> Limits:
        """Limits from what the model gives itself."""
        examiner = self.examiner()
        num = len(TOKENS) // SIZE
        offs = [examiner.offs_of(self.windows, at, TOKENS) for at in range(num)]
        worst = [worst_of(each) for each in zip(*offs, strict=True)]
        return calibrated(self.profile.scheme, worst, examiner.norms_of(self.windows))


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(tmp_path_factory.mktemp("models") / "m")


def test_what_is_honest_passes(rig: Rig) -> None:
    for limits in (None, rig.measured()):
        examiner = rig.examiner(limits)
        assert rig.check(rig.windows, examiner) == ["clean"] * 6
        verdicts = [rig.audit(rig.windows, at, examiner, canonical=False) for at in range(6)]
        assert verdicts == ["clean"] * 6


def test_what_is_honest_passes_in_bf16(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "m", "bfloat16")
    for limits in (None, rig.measured()):
        examiner = rig.examiner(limits)
        assert rig.check(rig.windows, examiner) == ["clean"] * 6
        verdicts = [rig.audit(rig.windows, at, examiner, canonical=False) for at in range(6)]
        assert verdicts == ["clean"] * 6


@pytest.mark.fault("F32")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_honest_differences_are_no_reason_to_accuse_or_to_drop(tmp_path: Path, dtype: str) -> None:
    """Cut otherwise, decoded token by token, on more threads, by the other path."""
    rig = Rig(tmp_path / "m", dtype)
    examiner = rig.examiner(rig.measured())
    num_threads = torch.get_num_threads()
    other = load_model(
        tmp_path / "m", settings(dtype=dtype, scheme=rig.profile.scheme, allow_fused=False)
    )
    made = [run(rig.model, TOKENS, (7, 25, 1)), run(rig.model, TOKENS, (16,) + (1,) * 80)]
    made.append(run(other, TOKENS, (40,)))
    try:
        torch.set_num_threads(2)
        made.append(run(rig.model, TOKENS))
    finally:
        torch.set_num_threads(num_threads)
    for each in made:
        windows = payloads(rig.model, each.raw)
        assert rig.check(windows, examiner) == ["clean"] * 6
        for at in range(6):
            assert rig.audit(windows, at, examiner, canonical=False) == "clean"


def changed(windows: Windows, at: int, change: Callable[[int, torch.Tensor], None]) -> Windows:
    """One window with something done to each of its layers."""
    found = [layer.clone() for layer in windows]
    for index, layer in enumerate(found):
        change(index, layer[at])
    return found


def scale(layer: int, by: float) -> Callable[[int, torch.Tensor], None]:
    return lambda index, rows: rows.mul_(by) if index == layer else None  # type: ignore[return-value]


def set_nan(index: int, rows: torch.Tensor) -> None:
    rows[3, 1, 5] = float("nan")


def set_zero(index: int, rows: torch.Tensor) -> None:
    if index == 2:
        rows[:, 0, :16] = 0.25


def recast(index: int, rows: torch.Tensor) -> None:
    step = rows.abs().amax(-1, keepdim=True) / 127
    rows.copy_((rows / step).round() * step)


@pytest.mark.parametrize(
    ("change", "bad"),
    [(scale(0, 1.01), "false"), (set_nan, "false"), (set_zero, "false"), (recast, "false")],
)
def test_what_no_model_gives_is_refused_before_it_is_used(
    rig: Rig, change: Callable[[int, torch.Tensor], None], bad: str
) -> None:
    windows = changed(rig.windows, 2, change)
    for limits, verdict in ((rig.measured(), bad), (None, "differs")):
        found = rig.check(windows, rig.examiner(limits))
        assert found == ["clean"] * 2 + [verdict] + ["clean"] * 3


def test_windows_of_other_tokens_are_refused(rig: Rig) -> None:
    """A shift by one position, and a window in another's place."""
    shifted = [layer.roll(1, 0) for layer in rig.windows]
    found = rig.check(shifted, rig.examiner(rig.measured()))
    assert found == ["false"] * 6


def test_a_deep_layer_that_is_changed_is_found_by_computing_it_again(rig: Rig) -> None:
    windows = changed(rig.windows, 3, scale(3, 1.1))
    examiner = rig.examiner(rig.measured())
    assert rig.check(windows, examiner) == ["clean"] * 6  # nothing shallow is wrong
    assert rig.audit(windows, 3, examiner, canonical=False) == "false"
    assert rig.audit(windows, 3, rig.examiner(), canonical=False) == "differs"
    assert rig.audit(windows, 2, examiner, canonical=False) == "clean"


def test_a_little_off_is_other_arithmetic(rig: Rig) -> None:
    limits = rig.measured()
    windows = changed(rig.windows, 3, scale(3, 1 + 1e-3))  # as TF32 may be
    assert rig.audit(windows, 3, rig.examiner(limits), canonical=False) == "other"


def test_two_positions_that_are_far_off_are_not_used(rig: Rig) -> None:
    """Most are as they should be: then the whole says it."""

    def few(index: int, rows: torch.Tensor) -> None:
        if index == 3:
            rows[:2] *= 1.1

    windows = changed(rig.windows, 3, few)
    assert rig.audit(windows, 3, rig.examiner(rig.measured()), canonical=False) == "false"


def test_canonical_windows_hold_to_the_last_place_or_are_false(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "m", "bfloat16")
    reference = CanonicalModel.open(tmp_path / "m")
    rows = reference.recompute([], TOKENS, torch.bfloat16).rows
    windows = payloads(rig.model, rows)
    examiner = rig.examiner()
    assert rig.check(windows, examiner, canonical=True) == ["clean"] * 6
    assert rig.audit(windows, 5, examiner, canonical=True) == "clean"
    windows[2].view(torch.int16)[5, 3, 1, 7] += 1  # one bit
    assert rig.check(windows, examiner, canonical=True) == ["clean"] * 6
    assert rig.audit(windows, 5, examiner, canonical=True) == "false"
    windows[0].view(torch.int16)[1, 3, 1, 7] += 1
    assert rig.check(windows, examiner, canonical=True) == ["clean", "false"] + ["clean"] * 4


@pytest.mark.fault("F32")
@pytest.mark.parametrize("layer", [0, 2])
def test_nobody_is_accused_of_what_another_machine_rounds_to_the_other_side(
    layer: int, tmp_path: Path
) -> None:
    """A value of V is moved to the middle between two: sums in another order end on either."""
    rig = Rig(tmp_path / "m", "bfloat16")
    model = CanonicalModel.open(tmp_path / "m")
    whole = model.recompute([], TOKENS, torch.bfloat16, unrounded=True)
    assert whole.unrounded is not None
    *at, dim = 3 * 16 + 2, 0, whole.unrounded[layer].shape[-1] // 2  # V's first
    value = float(whole.unrounded[layer][*at, dim])
    rounded = torch.tensor(value, dtype=torch.bfloat16)
    above = torch.nextafter(rounded, rounded + 1)
    projection = model._model.model.layers[layer].self_attn.v_proj
    projection.weight = projection.weight.double()
    projection.weight[0] *= (float(rounded) + float(above)) / 2 / value
    windows = payloads(rig.model, model.recompute([], TOKENS, torch.bfloat16).rows)
    examiner = Examiner(rig.model.layer_zero, lambda: model, rig.profile)
    beyond = torch.nextafter(above, above + 1)
    for side, verdict in ((rounded, "clean"), (above, "clean"), (beyond, "false")):
        windows[layer][3, 2, 0, dim] = side
        if layer == 0:  # what later layers have followed from the other side
            assert rig.check(windows, examiner, canonical=True)[3] == verdict
        else:
            assert rig.audit(windows, 3, examiner, canonical=True) == verdict


def test_without_a_reference_nothing_is_used_and_nobody_accused(rig: Rig) -> None:
    def refuse() -> CanonicalModel:
        raise ModelRefused("not known in float64")

    examiner = Examiner(rig.model.layer_zero, refuse, rig.profile, rig.measured())
    assert rig.check(rig.windows, examiner) == ["clean"] * 6  # its own arithmetic needs none
    assert rig.check(rig.windows, examiner, canonical=True) == ["differs"] * 6
    assert rig.audit(rig.windows, 3, examiner, canonical=False) == "differs"
