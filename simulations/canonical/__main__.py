"""`python -m simulations.canonical [--tokens N] [--quick] [--json FILE]`.

Computes one text in the canonical class again and again: in pieces, token by token, on other
threads and with other instruction sets, each in a process of its own; counts the elements of
K and V that differ, and compares speeds with the native class. Exits with 1 where bf16 or f16
differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from glia.engine.canonical import CanonicalModel
from glia.engine.load import LoadSettings, load_model
from glia.graph.profile import KvScheme
from glia.kv.compute import Piece
from simulations.canonical.child import MODEL, ROOT, STORAGE, text_tokens

_PIECES = (1, 7, 16, 128)
_MACHINES: dict[str, dict[str, str]] = {
    "ATEN_CPU_CAPABILITY=default": {"ATEN_CPU_CAPABILITY": "default"},
    "ATEN_CPU_CAPABILITY=avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "ONEDNN_MAX_CPU_ISA=SSE41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "MKL_CBWR=AVX2": {"MKL_CBWR": "AVX2"},
    "MKL_CBWR=COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "all of the least": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
    },
}
_DECIDING = ("bf16", "f16")
_GIB = 1 << 30


@dataclass(frozen=True)
class Row:
    """One comparison with the reference.

    Attributes:
        num_elements: K and V of all layers.
        num_before: elements that differ before rounding.
        noise: by how much, of the norm.
        num_different: elements that differ once they are rounded.
    """

    what: str
    storage: str
    num_elements: int
    num_before: int
    noise: float
    num_different: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m simulations.canonical", description=__doc__)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--quick", action="store_true", help="fewer cuts and instruction sets")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    args = parser.parse_args(argv)
    rows = []
    for row in compare(args.tokens, quick=args.quick):
        print(_line(row), flush=True)
        rows.append(row)
    speeds = measure_speeds(args.tokens)
    for name, speed in speeds.items():
        print(f"{name:34} {speed:10,.1f} tokens/s of a CPU second")
    print("Measured, not proven: what differs before rounding may differ after it, elsewhere.")
    if args.json:
        figures = {"rows": [asdict(row) for row in rows], "speeds": speeds}
        args.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return int(any(row.num_different for row in rows if row.storage in _DECIDING))


def compare(num_tokens: int, *, quick: bool) -> Iterator[Row]:
    """Every way to compute it, against one thread and all of it at once."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        reference = _run(path, num_tokens)
        for piece in _PIECES[-2:] if quick else _PIECES:
            yield from _rows(f"pieces of {piece}", reference, _run(path, num_tokens, piece=piece))
        yield from _rows("2 threads", reference, _run(path, num_tokens, threads=2))
        for what, environment in list(_MACHINES.items())[: 2 if quick else None]:
            yield from _rows(what, reference, _run(path, num_tokens, environment))


_Found = dict[str, tuple[torch.Tensor, torch.Tensor]]


def _run(
    directory: Path,
    num_tokens: int,
    environment: Mapping[str, str] | None = None,
    *,
    threads: int = 1,
    piece: int = 512,
) -> _Found:
    out = directory / "out.safetensors"
    words = ("simulations.canonical.child", num_tokens, threads, out, piece)
    subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        check=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stderr=subprocess.DEVNULL,
    )
    found = load_file(out)
    return {name: (found[name], found[f"{name} wide"]) for name in STORAGE}


def _rows(what: str, reference: _Found, found: _Found) -> Iterator[Row]:
    for storage in STORAGE:
        (rounded, wide), (rounded_2, wide_2) = reference[storage], found[storage]
        noise = float((wide - wide_2).norm() / wide.norm())
        differ = [int((a != b).sum()) for a, b in ((wide, wide_2), (rounded, rounded_2))]
        yield Row(what, storage, rounded.numel(), differ[0], noise, differ[1])


def _line(row: Row) -> str:
    return (
        f"{row.what:30} {row.storage:5} {row.num_elements:12,} elements, before rounding "
        f"{row.num_before:11,} differ (by {row.noise:.1e}), rounded {row.num_different:,}"
    )


def measure_speeds(num_tokens: int) -> dict[str, float]:
    """Prefill, tokens per CPU second: the native class, and both ways to keep weights."""
    tokens = text_tokens(num_tokens)
    native = load_model(MODEL, LoadSettings("bfloat16", 16, KvScheme.BF16, _GIB // 4))
    raw = native.new_raw(num_tokens)
    slots = range(-(-num_tokens // 16))
    kept, widened = (CanonicalModel.open(MODEL, most_bytes=most) for most in (4 * _GIB, 0))
    speeds = {"native, bf16": 0.0, "canonical": 0.0, "canonical, weights widened": 0.0}
    for _ in range(3):
        took = [
            _cpu_s(lambda: native.forward([Piece(tokens, 0, slots, raw)])),
            _cpu_s(lambda: kept.recompute([], tokens, torch.bfloat16)),
            _cpu_s(lambda: widened.recompute([], tokens, torch.bfloat16)),
        ]
        for name, spent_s in zip(speeds, took, strict=True):
            speeds[name] = max(speeds[name], num_tokens / spent_s)
    return speeds


def _cpu_s(work: object) -> float:
    started = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
