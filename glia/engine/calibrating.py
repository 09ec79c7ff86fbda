"""`python -m glia.engine.calibrating`: how far off honest K and V of one model are, measured.

A program of its own, started by gliad: engines go on meanwhile, and it runs behind them (nice).
Instruction sets cannot be changed within a process: for each one below its own the same program
computes some of the passages (`--rows`). All are then held against the reference in this one, as
an engine does with what a peer sent. See spec/16-audit.md, spec/20-calibration.md.

It says on stdout how far it is, one JSON line each: {what, done, total}; at the end
{written, windows, kernels, whole, common}: the file, what it is from, and the limits; or, as an
engine, {code, message, hint}, and exits with 2.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import BinaryIO, NoReturn

import torch

from glia.engine.calibration import Calibration, write_calibration
from glia.engine.honest import WAYS, Windows, windows_by
from glia.engine.limits import Off, Pair, widest_of, worst_of
from glia.engine.opening import Opened, OpenSettings, Tell, open_model
from glia.engine.passages import passages
from glia.errors import EngineFailed, GliaError

EXIT_REFUSED = 2
_L0_BYTES = 128 * 1024 * 1024
_NICE = 10
_SHARE = 7  # of so many passages one is computed with each of the other instruction sets
# By torch's names, each one's lower ones: what torch and oneDNN are told.
_LOWER = {
    "AVX512": (("avx2", "AVX2"), ("default", "SSE41")),
    "AVX2": (("default", "SSE41"),),
}


@dataclass
class Measured:
    """What came of the windows so far."""

    num_windows: int = 0
    worst: list[Off] = field(default_factory=list)
    norms: list[tuple[Pair, Pair]] = field(default_factory=list)

    def add(self, offs: Sequence[Off], norms: Sequence[tuple[Pair, Pair]]) -> None:
        """One window more. Args: per layer."""
        if self.num_windows:
            offs = [worst_of(pair) for pair in zip(self.worst, offs, strict=True)]
            norms = [widest_of(pair) for pair in zip(self.norms, norms, strict=True)]
        self.worst, self.norms = [*offs], [*norms]
        self.num_windows += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and keep it. Returns: the exit code."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, _end)  # an exception: the process that is waited for ends, too
    os.nice(_NICE)
    given = sys.argv[1:] if argv is None else argv
    args = _parser().parse_args(given)
    try:
        if args.rows is not None:
            _write_rows(args)
        else:
            path, found = _calibrate(args, given)
            _say(
                written=str(path),
                windows=found.num_windows,
                kernels=found.kernels,
                whole=found.limits().whole,
                common=found.limits().common,
            )
    except Exception as error:
        return _refused(error)
    return 0


def _calibrate(args: argparse.Namespace, given: Sequence[str]) -> tuple[Path, Calibration]:
    lower = _LOWER.get(torch.backends.cpu.get_cpu_capability(), ())
    with tempfile.TemporaryDirectory(prefix="glia-calibrating-") as directory:
        files = [Path(directory) / kernel for kernel, _ in lower]
        for share, (kernels, file) in enumerate(zip(lower, files, strict=True)):
            _tell(f"computing with instruction set {kernels[0]}", 0, 0)
            _compute_apart(given, share, kernels, file)
        opened = open_model(_settings(args), _tell)
        found = measure(opened, args.passages, files, _tell)
    names = (torch.backends.cpu.get_cpu_capability(), *(name.upper() for name, _ in lower))
    calibration = Calibration(
        opened.model_id,
        opened.profile,
        args.dtype,
        found.num_windows,
        names,
        tuple(found.worst),
        tuple(found.norms),
    )
    return write_calibration(args.calibrations, calibration), calibration


def measure(opened: Opened, num: int, files: Sequence[Path], tell: Tell) -> Measured:
    """Hold so many passages against the reference. Args: files: rows of those computed apart."""
    texts = _passages(opened, num)
    examiner, found = opened.examiner(), Measured()
    others = [_shared(num, share) for share in range(len(files))]
    apart = {index for share in others for index in share}
    size = opened.profile.block_size
    total = sum(len(tokens) // size for tokens in texts)

    def add(windows: Windows, tokens: Sequence[int]) -> None:
        for at in range(len(windows[0])):
            one = [layer[at : at + 1] for layer in windows]
            found.add(examiner.offs_of(windows, at, tokens), examiner.norms_of(one))
            tell("examining windows", found.num_windows, total)

    for index in range(num):
        if index not in apart:
            add(windows_by(opened.model, texts[index], _way(index)), texts[index])
    for indices, file in zip(others, files, strict=True):
        with file.open("rb") as rows:
            for index in indices:
                add(_read_rows(rows, opened, len(texts[index]) // size), texts[index])
    return found


# -- other instruction sets -----------------------------------------------------------------------


def _compute_apart(given: Sequence[str], share: int, kernels: tuple[str, str], file: Path) -> None:
    """Raises: EngineFailed."""
    environment = {
        **os.environ,
        "ATEN_CPU_CAPABILITY": kernels[0],
        "ONEDNN_MAX_CPU_ISA": kernels[1],
    }
    words = [sys.executable, "-m", "glia.engine.calibrating", *given]
    done = subprocess.run(  # noqa: S603 - this program, with what gliad gave it
        [*words, "--rows", str(file), "--share", str(share)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise EngineFailed(
            f"computing with instruction set {kernels[0]} ended with {done.returncode}",
            hint="the log says why",
        )


def _write_rows(args: argparse.Namespace) -> None:
    opened = open_model(_settings(args), lambda *_: None)
    texts = _passages(opened, args.passages)
    with args.rows.open("xb") as file:
        for index in _shared(args.passages, args.share):
            for rows in windows_by(opened.model, texts[index], _way(index)):
                file.write(rows.contiguous().view(torch.uint8).numpy().tobytes())


def _read_rows(file: BinaryIO, opened: Opened, num_windows: int) -> Windows:
    """Raises: EngineFailed where these are not all."""
    found: Windows = []
    for each in opened.profile.layers:
        shape = (num_windows, opened.profile.block_size, each.kv_heads, 2 * each.head_dim)
        num_bytes = prod(shape) * opened.model.storage.itemsize
        data = bytearray(file.read(num_bytes))
        if len(data) != num_bytes:
            raise EngineFailed("what was computed apart is not whole")
        found.append(torch.frombuffer(data, dtype=opened.model.storage).view(shape))
    return found


# -- which, how -----------------------------------------------------------------------------------


def _passages(opened: Opened, num: int) -> list[list[int]]:
    model = opened.model
    context = min(model.context_tokens, model.num_slots * model.block_size)
    return passages(opened.files, model.vocab_size, model.block_size, context, num)


def _shared(num: int, share: int) -> range:
    return range(share, num, _SHARE)


def _way(index: int) -> str:
    return WAYS[(index + index // len(WAYS)) % len(WAYS)]


# -- from and to gliad ----------------------------------------------------------------------------


def _tell(what: str, done: int, total: int) -> None:
    _say(what=what, done=done, total=total)


def _say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def _refused(error: Exception) -> int:
    if not isinstance(error, GliaError):
        traceback.print_exception(error)
        error = EngineFailed(f"it could not be measured: {type(error).__name__}", hint="the log")
    _say(code=error.code, message=error.message, hint=error.hint)
    return EXIT_REFUSED


def _end(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


def _settings(args: argparse.Namespace) -> OpenSettings:
    return OpenSettings(
        manifest=args.manifest,
        dtype=args.dtype,
        ids_cache=args.ids_cache,
        convert_dir=args.convert_dir,
        calibrations=args.calibrations,
        l0_bytes=_L0_BYTES,
        wide_bytes=0,
        num_threads=args.threads,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m glia.engine.calibrating")
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--ids-cache", type=Path, required=True)
    parser.add_argument("--convert-dir", type=Path, required=True)
    parser.add_argument("--calibrations", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--passages", type=int, required=True)
    parser.add_argument("--rows", type=Path, help="compute a share, write it here, end")
    parser.add_argument("--share", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
