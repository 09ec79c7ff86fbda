"""What it costs to look at a window that a peer sent, and to compute it: CPU time of one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from glia.engine.canonical import CanonicalModel
from glia.engine.examining import Examiner
from glia.engine.honest import windows_by
from glia.engine.limits import Limits
from glia.engine.load import LoadSettings, load_model
from glia.graph.profile import KvScheme, PositionMode, Profile
from glia.model.tokenizer import Tokenizer
from simulations.bench.report import Row

_ROOT = Path(__file__).resolve().parents[2]
_MODEL_DIR = _ROOT / "models" / "smollm2"
_SIZE = 16
_WINDOWS = 32  # that are looked at together, as an engine does


def looked_at(quick: bool) -> tuple[Row, dict[str, float]]:
    """The check that each one passes before its first use, and an audit, in turn with prefill."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _looked_at(3 if quick else 9)
    finally:
        torch.set_num_threads(num_threads)


def _looked_at(reps: int) -> tuple[Row, dict[str, float]]:
    model = load_model(_MODEL_DIR, LoadSettings("bfloat16", _SIZE, KvScheme.BF16, 1 << 28))
    profile = Profile(_SIZE, KvScheme.BF16, PositionMode.RELATIVE, model.shapes)
    reference = CanonicalModel.open(_MODEL_DIR)
    wide = ((1e9, 1e9),) * len(model.shapes)
    ranges = (((0.0, 1e9), (0.0, 1e9)),) * len(model.shapes)
    limits = Limits(wide, wide, ranges)  # as where it is calibrated: nothing is left out
    examiner = Examiner(model.layer_zero, lambda: reference, profile, limits)
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    tokens = Tokenizer.load(_MODEL_DIR).encode(text)[: _WINDOWS * _SIZE]
    windows = windows_by(model, tokens, "whole")
    half = [layer[: _WINDOWS // 2] for layer in windows]
    own = tokens[_WINDOWS // 2 * _SIZE :][:_SIZE]

    def check() -> object:
        return examiner.check(tokens, windows, [False] * _WINDOWS)

    def audit() -> object:
        window = [layer[_WINDOWS // 2] for layer in windows]
        return examiner.audit(half, window, own, is_canonical=False)

    calls: dict[str, tuple[Callable[[], object], int]] = {
        "prefill": (lambda: windows_by(model, tokens, "whole"), _WINDOWS),
        "check": (check, _WINDOWS),
        "rows": (lambda: examiner._rows(windows), _WINDOWS),
        "layer 0": (lambda: examiner._own_rows(tokens), _WINDOWS),
        "audit": (audit, 1),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(reps + 1):
        for name, (call, num) in calls.items():
            times[name].append(_cpu_ms(call) / num)
    found = {name: median(each[1:]) for name, each in times.items()}
    share = 100 * found["check"] / found["prefill"]
    figures = {f"{name}, ms a window": value for name, value in found.items()}
    figures["check, % of prefill"] = share
    figures["audit, % of prefill"] = 100 * found["audit"] / found["prefill"]
    return Row("G3", share, f"{found['check']:.3f} ms", f"{found['prefill']:.2f} ms"), figures


def _cpu_ms(call: Callable[[], object]) -> float:
    started_s = time.thread_time()
    call()
    return 1000 * (time.thread_time() - started_s)
