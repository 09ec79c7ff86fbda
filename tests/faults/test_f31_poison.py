"""F31, F32: what was tampered with is found, and honest windows are not, on real models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glia.engine.calibrating import measure
from glia.engine.honest import WAYS, windows_by
from glia.engine.limits import calibrated
from glia.engine.opening import Opened, OpenSettings, open_model
from simulations.audits.__main__ import main
from simulations.audits.tampering import kinds, tally, verdict
from tests.model_parts import SMOLLM2, save_tiny

FULL = bool(os.environ.get("GLIA_FULL"))
AT_ONCE = ("other tokens", "another model", "position shift", "layers swapped", "recast to int8")
TOKENS = [3 + 7 * at % 90 for at in range(128)]
OTHERS = [5 + 11 * at % 89 for at in range(128)]


def opened(path: Path, name: str, dtype: str, seed: int) -> Opened:
    save_tiny(path / name, "llama", num_hidden_layers=4, seed=seed)
    manifest = path / f"{name}.model"
    manifest.write_text(f'source = "{name}"\ndtype = "{dtype}"\n')
    settings = OpenSettings(
        manifest=manifest,
        dtype=dtype,
        ids_cache=path / "ids.json",
        convert_dir=path,
        calibrations=path,
        l0_bytes=2**24,
        wide_bytes=0,
        num_threads=1,
    )
    return open_model(settings, lambda *_: None)


@pytest.mark.fault("F31", "F32")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lies_are_seen_and_honest_windows_pass(tmp_path: Path, dtype: str) -> None:
    """The first five kinds before their first use, deep layers by the audit."""
    model, stranger = (opened(tmp_path, name, dtype, at) for at, name in enumerate(("a", "b")))
    measured = measure(model, 4, (), lambda *_: None)
    limits = calibrated(model.profile.scheme, measured.worst, measured.norms)
    examiner = model.examiner(limits)
    for way in WAYS:
        windows = windows_by(model.model, OTHERS, way)
        said = {verdict(examiner, windows, OTHERS, at) for at in range(len(windows[0]))}
        assert said == {"audit: clean"}
    true, other = (windows_by(model.model, tokens, WAYS[0]) for tokens in (TOKENS, OTHERS))
    weights = windows_by(stranger.model, TOKENS, WAYS[0])
    for kind, change in kinds(other, weights, len(true)).items():
        found = tally(examiner, true, TOKENS, change, range(1, 8, 2))
        assert found.total() == 4
        if kind in AT_ONCE:
            assert all(said.startswith("check: ") for said in found), (kind, found)
        elif dtype == "float32":
            assert set(found) == {"audit: false"}, (kind, found)
        else:  # its noise is larger than SmolLM2's: 10 % need not be three limits away
            assert set(found) <= {"audit: false", "audit: other"}, (kind, found)


@pytest.mark.skipif(not FULL, reason="minutes; GLIA_FULL=1")
@pytest.mark.fault("F31", "F32")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_same_on_smollm2(dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    """192 windows of 30 layers, 5,760 blocks: 0 accused, at most 1 dropped; no lie passes."""
    if not (SMOLLM2 / "model.safetensors").exists():
        pytest.fail("models/smollm2 is missing: run make setup")
    assert main(["--windows", "192", "--dtype", dtype, "--passages", "24"]) == 0
    with capsys.disabled():
        print(capsys.readouterr().out)
