"""`python -m simulations.audits [--windows N] [--dtype bfloat16] [--calibrations DIR] [--quick]`.

F31 and F32 on the demo model. Limits are those of a calibration, or are measured first. Against
them are held honest windows of other texts (cut otherwise, decoded, on other threads, by other
instruction sets, each in a process of its own), and windows that were tampered with. Exits with 1
where an honest window was accused, more than 0.1 % of them dropped, or a lie passed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as gliad's engines; torch reads it once

import torch
from safetensors.torch import load_file, save_file

from glia.engine.calibrating import measure
from glia.engine.calibration import read_calibration
from glia.engine.examining import Examiner
from glia.engine.honest import WAYS, Windows, windows_by
from glia.engine.limits import Limits, calibrated
from glia.engine.opening import Opened, OpenSettings, open_model
from glia.model.tokenizer import Tokenizer
from simulations.audits.tampering import kinds, tally, verdict

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "smollm2"
_DTYPES = ("bfloat16", "float16", "float32")
_PASSAGE = 256  # tokens
_KERNELS = {"avx2": "AVX2", "default": "SSE41"}  # by ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA
_MOST_DROPPED = 1e-3


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m simulations.audits", description=__doc__)
    parser.add_argument("--windows", type=int, default=96, help="honest ones; default: 96")
    parser.add_argument("--dtype", choices=_DTYPES, default=_DTYPES[0])
    parser.add_argument("--calibrations", type=Path, help="DATA_DIR/models/calibrated, of a gliad")
    parser.add_argument("--passages", type=int, default=12, help="that limits are measured from")
    parser.add_argument("--quick", action="store_true", help="this process's kernels alone")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)  # a child's work
    args = parser.parse_args(argv)
    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="glia-audits-") as directory:
        if args.rows is not None:
            opened = _open(MODEL, args.dtype, Path(directory))
            save_file(_named(windows_by(opened.model, _text(args.windows), WAYS[0])), args.rows)
            return 0
        honest, lies = _measure(args, Path(directory))
    print(f"{time.perf_counter() - started_s:,.0f} s")
    if args.json:
        args.json.write_text(json.dumps({"honest": honest, "lies": lies}, indent=1) + "\n")
    return int(not (_is_fair(honest) and _is_seen(lies)))


def _measure(
    args: argparse.Namespace, directory: Path
) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    opened = _open(MODEL, args.dtype, directory)
    examiner = opened.examiner(_limits(args, opened))
    honest: dict[str, Counter[str]] = {}
    num = max(1, args.windows // (len(WAYS) + (0 if args.quick else len(_KERNELS))))
    for way, tokens, windows in _ways(args, opened, num, directory):
        found = Counter(verdict(examiner, windows, tokens, at) for at in range(len(windows[0])))
        honest[way] = found
        print(f"honest, {way}: {dict(found)}", flush=True)
    return honest, _lies(args, opened, examiner, directory)


def _lies(
    args: argparse.Namespace, opened: Opened, examiner: Examiner, directory: Path
) -> dict[str, Counter[str]]:
    tokens, other = _text(8), _text(16)[128:]
    true = windows_by(opened.model, tokens, WAYS[0])
    stranger = _open(_other_model(directory), args.dtype, directory)
    others = (windows_by(opened.model, other, WAYS[0]), windows_by(stranger.model, tokens, WAYS[0]))
    found: dict[str, Counter[str]] = {}
    for kind, change in kinds(*others, len(true)).items():
        found[kind] = tally(examiner, true, tokens, change, range(1, len(true[0]), 2))
        print(f"{kind}: {dict(found[kind])}", flush=True)
    return found


def _limits(args: argparse.Namespace, opened: Opened) -> Limits:
    if args.calibrations is not None:
        own = opened.model_id, opened.profile, args.dtype
        found = read_calibration(args.calibrations, *own)
        if found is None:
            raise SystemExit(f"{args.calibrations} has none of this model in {args.dtype}")
        return found.limits()
    measured = measure(opened, args.passages, (), lambda *_: None)
    print(f"limits of {measured.num_windows} windows", flush=True)
    return calibrated(opened.profile.scheme, measured.worst, measured.norms)


def _ways(
    args: argparse.Namespace, opened: Opened, num: int, directory: Path
) -> Iterator[tuple[str, list[int], Windows]]:
    """Honest windows, each way of other text: its name, tokens, K and V."""
    text = _text(num * len(WAYS))
    for index, way in enumerate(WAYS):
        for at in range(index * num * 16, (index + 1) * num * 16, _PASSAGE):
            tokens = text[at : min(at + _PASSAGE, (index + 1) * num * 16)]
            yield f"{way}, from token {at:,}", tokens, windows_by(opened.model, tokens, way)
    for kernel, isa in () if args.quick else _KERNELS.items():
        out = directory / f"{kernel}.safetensors"
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": kernel, "ONEDNN_MAX_CPU_ISA": isa}
        words = ("--windows", str(num), "--dtype", args.dtype, "--rows", str(out))
        subprocess.run(
            [sys.executable, "-m", "simulations.audits", *words],
            env=environment, cwd=ROOT, check=True,
        )  # fmt: skip
        rows = load_file(out)
        windows = [rows[str(layer)] for layer in range(len(rows))]
        yield f"instruction set {kernel}", _text(num), windows


def _is_fair(honest: dict[str, Counter[str]]) -> bool:
    total: Counter[str] = sum(honest.values(), Counter())
    num, num_accused = total.total(), sum(n for said, n in total.items() if "false" in said)
    dropped = num - total["audit: clean"]
    print(f"honest in all: {num_accused} accused, {dropped} of {num:,} windows dropped")
    return num_accused == 0 and dropped <= max(1, _MOST_DROPPED * num)


def _is_seen(lies: dict[str, Counter[str]]) -> bool:
    passed = {kind: found["audit: clean"] for kind, found in lies.items() if found["audit: clean"]}
    print(f"lies that pass where they are drawn: {passed or 'none'}")
    return not passed


def _other_model(directory: Path) -> Path:
    """The same one with the weights of K and V 1 % off, each by chance: as one that was tuned."""
    target = directory / "other"
    shutil.copytree(MODEL, target, ignore=shutil.ignore_patterns("*.safetensors"))
    chance = torch.Generator().manual_seed(1)
    weights = load_file(MODEL / "model.safetensors")
    for name, weight in weights.items():
        if "k_proj" in name or "v_proj" in name:
            noise = torch.randn(weight.shape, generator=chance, dtype=torch.float32)
            weights[name] = (weight * (1 + 0.01 * noise)).to(weight.dtype)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


def _text(num_windows: int) -> list[int]:
    """Not what the limits are measured from, but as like it as README and notes are."""
    pages = (ROOT / "README.md", *sorted((ROOT / "p2p" / "spec").glob("*.md")))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return Tokenizer.load(MODEL).encode(text)[: num_windows * 16]


def _named(windows: Windows) -> dict[str, torch.Tensor]:
    return {str(layer): rows.contiguous() for layer, rows in enumerate(windows)}


def _open(model: Path, dtype: str, directory: Path) -> Opened:
    manifest = directory / f"{model.name}.model"
    manifest.write_text(f'source = "{model}"\ndtype = "{dtype}"\n')
    settings = OpenSettings(
        manifest=manifest,
        dtype=dtype,
        ids_cache=directory / "ids.json",
        convert_dir=directory,
        calibrations=directory,
        l0_bytes=1 << 28,
        wide_bytes=0,
        num_threads=1,
    )
    return open_model(settings, lambda *_: None)


if __name__ == "__main__":
    sys.exit(main())
