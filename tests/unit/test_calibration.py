"""Limits that were measured: what follows from them, the file that keeps them, who measures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from glia.engine import calibrating
from glia.engine.calibration import (
    Calibration,
    read_calibration,
    write_calibration,
)
from glia.engine.honest import WAYS, windows_by
from glia.engine.limits import ACCUSED, Limits, Off, calibrated, uncalibrated, widest_of, worst_of
from glia.engine.opening import OpenSettings, open_model
from glia.errors import BadCalibration, EngineFailed, StoreError
from glia.graph.ids import ModelId
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from tests.model_parts import load_tiny, same_bytes, save_tiny

MODEL = ModelId(bytes(range(32)))
QUIET = Off((1e-4, 2e-4), (5e-5, 1e-4))
NORMS = ((0.5, 2.0), (0.25, 1.0))


def found(num_layers: int = 2) -> Calibration:
    model = load_shapes(num_layers)
    return Calibration(
        MODEL, model, "bfloat16", 64, ("AVX2", "DEFAULT"), (QUIET,) * num_layers,
        (NORMS,) * num_layers,
    )  # fmt: skip


def load_shapes(num_layers: int) -> Profile:
    shapes = tuple(LayerShape(layer, 2, 16) for layer in range(num_layers))
    return Profile(16, KvScheme.BF16, PositionMode.RELATIVE, shapes)


# -- limits ---------------------------------------------------------------------------------------


def test_a_window_is_judged_by_all_positions_and_by_most_of_them() -> None:
    limits = calibrated(KvScheme.BF16, [QUIET, Off((1e-2, 2e-2), (8e-3, 1e-2))], [NORMS] * 2)
    assert limits.whole[1] == pytest.approx((3e-2, 6e-2))
    assert limits.common is not None
    assert limits.common[1] == pytest.approx((1.2e-2, 1.5e-2))
    still = (0.0, 0.0)

    def verdict(whole: tuple[float, float], common: tuple[float, float] = still) -> str:
        return limits.judge(1, Off(whole, common)).verdict

    assert verdict((2.9e-2, 5.9e-2), (1.1e-2, 1.4e-2)) == "clean"
    assert verdict((3.1e-2, 0.0)) == "other"
    assert verdict((0.0, 6.1e-2 * ACCUSED)) == "false"
    assert verdict(still, (1.3e-2, 0.0)) == "other"
    assert verdict(still, (0.0, 1.6e-2 * ACCUSED)) == "false"
    assert verdict((float("nan"), 0.0), (float("nan"), 0.0)) == "false"
    # One that is false is told, whatever else is further above its limit.
    judged = limits.judge(1, Off((8.9e-2, 0.0), (1.2e-2 * 1.01 * ACCUSED, 0.0)))
    assert (judged.verdict, judged.limit) == ("false", pytest.approx(1.2e-2))


def test_nobody_is_accused_of_what_other_machines_arithmetic_gives() -> None:
    """f32 products with TF32 inputs are 3e-4 to 1e-3 off; bf16 that was computed in f32 3e-3."""
    exact = Off((3e-7, 3e-7), (3e-7, 3e-7))
    limits = calibrated(KvScheme.F32, [exact, exact], [NORMS] * 2)
    for layer, error in ((0, 3.1e-4), (1, 1.1e-3)):
        assert limits.judge(layer, Off((error, error), (error, error))).verdict == "other"
    limits = calibrated(KvScheme.BF16, [Off((0.0, 0.0), (0.0, 0.0))], [NORMS])
    assert limits.judge(0, Off((3e-3, 3e-3), (3e-3, 3e-3))).verdict == "other"
    assert limits.judge(0, Off((4e-4, 4e-4), (4e-4, 4e-4))).verdict == "clean"


def test_without_limits_of_its_own_nothing_is_false() -> None:
    limits = uncalibrated(KvScheme.F32, 4)
    assert not limits.is_calibrated
    assert limits.judge(3, Off((10.0, 10.0), (10.0, 10.0))).verdict == "differs"


def test_the_worst_and_the_widest_of_several() -> None:
    one, other = Off((1.0, 5.0), (2.0, 0.5)), Off((3.0, 4.0), (1.0, 0.75))
    assert worst_of([one, other]) == Off((3.0, 5.0), (2.0, 0.75))
    assert widest_of([((1.0, 2.0), (3.0, 4.0)), ((0.5, 1.5), (3.5, 9.0))]) == (
        (0.5, 2.0),
        (3.0, 9.0),
    )


# -- the file -------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_is_what_its_page_says(tmp_path: Path) -> None:
    directory = tmp_path / "models" / "calibrated"
    given = found()
    profile = given.profile
    assert read_calibration(directory, MODEL, profile, "bfloat16") is None
    path = write_calibration(directory, given)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in directory.iterdir()] == [path.name]
    assert read_calibration(directory, MODEL, profile, "bfloat16") == given
    # By the page alone:
    assert path.name == f"{MODEL.hex()}-{profile.profile_id.hex()}-bfloat16.json"
    value = json.loads(path.read_bytes())
    assert list(value) == [
        "version", "model_id", "profile_id", "dtype", "windows", "kernels", "layers",
    ]  # fmt: skip
    assert (value["version"], value["windows"]) == (1, 64)
    assert value["layers"][1] == {
        "whole": [1e-4, 2e-4],
        "common": [5e-5, 1e-4],
        "norms": [[0.5, 2.0], [0.25, 1.0]],
    }


def set_to(*path_and_value: Any) -> Any:
    *path, last, new = path_and_value

    def change(value: Any) -> None:
        for part in path:
            value = value[part]
        value[last] = new

    return change


@pytest.mark.parametrize(
    "change",
    [
        set_to("version", 2),
        set_to("model_id", bytes(32).hex()),
        set_to("profile_id", bytes(32).hex()),
        set_to("dtype", "float32"),
        set_to("windows", 0),
        set_to("kernels", []),
        set_to("layers", []),
        set_to("more", 1),
        set_to("layers", 0, "whole", [1e-4]),
        set_to("layers", 0, "whole", [1e-4, -1e-4]),
        set_to("layers", 0, "common", [1e-4, 1e300]),
        set_to("layers", 0, "common", ["1e-4", 1e-4]),
        set_to("layers", 0, "norms", [[2.0, 0.5], [0.25, 1.0]]),
        set_to("layers", 0, "more", 1),
        lambda value: value["layers"].pop(),
        lambda value: value.pop("kernels"),
    ],
)
def test_a_file_that_is_not_one_is_refused(tmp_path: Path, change: Any) -> None:
    given = found()
    path = write_calibration(tmp_path, given)
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))
    with pytest.raises(BadCalibration) as caught:
        read_calibration(tmp_path, MODEL, given.profile, "bfloat16")
    assert caught.value.hint is not None
    assert "--calibrate" in caught.value.hint


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff", b" " * (2**20 + 1)])
def test_noise_in_its_place_is_refused(tmp_path: Path, data: bytes) -> None:
    given = found()
    write_calibration(tmp_path, given).write_bytes(data)
    with pytest.raises(BadCalibration):
        read_calibration(tmp_path, MODEL, given.profile, "bfloat16")


def test_where_it_cannot_be_kept_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError):
        write_calibration(tmp_path / "taken", found())


# -- who measures ---------------------------------------------------------------------------------


def test_honest_ways_give_the_bytes_of_their_kernels(tmp_path: Path) -> None:
    """On one machine cutting, decoding and threads change nothing."""
    model = load_tiny(tmp_path / "m", "llama")
    tokens = [3 + 7 * at % 90 for at in range(64)]
    whole = windows_by(model, tokens, WAYS[0])
    num_threads = torch.get_num_threads()
    for way in WAYS[1:]:
        for one, other in zip(whole, windows_by(model, tokens, way), strict=True):
            assert same_bytes(one, other)
    assert torch.get_num_threads() == num_threads


@pytest.fixture
def settings(tmp_path: Path) -> OpenSettings:
    save_tiny(tmp_path / "tiny", "llama", num_hidden_layers=4)
    manifest = tmp_path / "tiny.model"
    manifest.write_text('source = "tiny"\ndtype = "float32"\n')
    return OpenSettings(
        manifest=manifest,
        dtype="float32",
        ids_cache=tmp_path / "ids.json",
        convert_dir=tmp_path / "converted",
        calibrations=tmp_path / "calibrated",
        l0_bytes=2**24,
        wide_bytes=0,
        num_threads=1,
    )


def argv(settings: OpenSettings, num_passages: int) -> list[str]:
    return [
        *("--manifest", str(settings.manifest), "--dtype", settings.dtype, "--threads", "1"),
        *("--ids-cache", str(settings.ids_cache), "--convert-dir", str(settings.convert_dir)),
        *("--calibrations", str(settings.calibrations), "--passages", str(num_passages)),
    ]


def test_a_model_is_measured_and_its_engines_have_the_limits(
    settings: OpenSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With rows of another process, which is this one: what it writes is what is read."""
    apart: list[int] = []

    def here(given: list[str], share: int, kernels: tuple[str, str], file: Path) -> None:
        words = [*given, "--rows", str(file), "--share", str(share)]
        calibrating._write_rows(calibrating._parser().parse_args(words))
        apart.append(file.stat().st_size)

    monkeypatch.setattr(calibrating, "_compute_apart", here)
    monkeypatch.setattr(calibrating.os, "nice", lambda _: 0)
    monkeypatch.setattr(calibrating.signal, "signal", lambda *_: None)
    monkeypatch.setitem(
        calibrating._LOWER, torch.backends.cpu.get_cpu_capability(), (("default", "SSE41"),)
    )
    assert calibrating.main(argv(settings, 4)) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["done"] for each in said if each.get("what") == "examining windows"][-1] > 4
    assert len(apart) == 1
    assert apart[0] > 0
    opened = open_model(settings, lambda *_: None)
    kept = read_calibration(settings.calibrations, opened.model_id, opened.profile, "float32")
    assert kept is not None
    assert said[-1]["written"].endswith("-float32.json")
    assert (said[-1]["windows"], len(said[-1]["whole"])) == (kept.num_windows, 4)
    # Other text of the same model passes; a deep layer that is changed does not.
    limits = kept.limits()
    examiner = opened.examiner(limits)
    tokens = [5 + 11 * at % 80 for at in range(96)]
    windows = windows_by(opened.model, tokens, "cut")
    before, own = [layer[:3] for layer in windows], tokens[48:64]

    def audit() -> str:
        window = [layer[3] for layer in windows]
        return examiner.audit(before, window, own, is_canonical=False).verdict

    assert audit() == "clean"
    windows[3][3, ..., 16:] *= 1.1
    assert audit() == "false"


def test_a_model_that_cannot_be_loaded_says_so(
    settings: OpenSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrating.os, "nice", lambda _: 0)
    monkeypatch.setattr(calibrating.signal, "signal", lambda *_: None)
    monkeypatch.setattr(calibrating, "_LOWER", {})
    shutil.rmtree(settings.manifest.parent / "tiny")
    assert calibrating.main(argv(settings, 4)) == 2
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["code"] == "bad_model_file"
    assert not settings.calibrations.exists()


def test_rows_that_are_not_whole_are_not_used(settings: OpenSettings, tmp_path: Path) -> None:
    opened = open_model(settings, lambda *_: None)
    (tmp_path / "rows").write_bytes(bytes(1000))
    with (tmp_path / "rows").open("rb") as file, pytest.raises(EngineFailed):
        calibrating._read_rows(file, opened, 16)


def test_limits_can_be_taken_and_given_up(settings: OpenSettings) -> None:
    opened = open_model(settings, lambda *_: None)
    examiner = opened.examiner()
    assert not examiner.is_calibrated
    wide = Limits(((1.0, 1.0),) * 4, ((1.0, 1.0),) * 4)
    examiner.take_limits(wide)
    assert examiner.is_calibrated
    examiner.take_limits(None)
    assert examiner.limits == uncalibrated(KvScheme.F32, 4)
