"""A GGUF file becomes a safetensors directory, once. `python -m glia.engine.convert GGUF DIR`.

Weights are dequantised to f32, so a GGUF file and its conversion are one model with one
model_id. Whole or absent: the directory appears by a rename, when all of it is on disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from blake3 import blake3
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from glia.engine.families import check_family
from glia.engine.loading_report import check_report
from glia.errors import BadModelFile, GliaError, ModelRefused
from glia.model.gguf import read_gguf_header

Progress = Callable[[int, int], None]
_STEPS = 4


def converted(gguf: Path, convert_dir: Path, on_progress: Progress) -> Path:
    """The conversion of a GGUF file under `convert_dir`, made if it is not there.

    It is found again by the file's identity: device, inode, size and time of change.

    Raises: BadModelFile, ModelRefused.
    """
    stat = gguf.stat()
    identity = f"{stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"
    target = convert_dir / blake3(identity.encode()).hexdigest()[:32]
    convert(gguf, target, on_progress)
    return target


def convert(gguf: Path, target: Path, on_progress: Progress) -> None:
    """Write the safetensors directory of a GGUF file, unless it is there.

    Args:
        on_progress: (done, total) steps.
    Raises:
        BadModelFile: truncated, malformed, without a tensor, or of no kind that can be read.
        ModelRefused: its model type is not accepted.
    """
    check_family({"model_type": read_gguf_header(gguf).model_type})
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _one_at_a_time(target):
        if target.is_dir():
            return
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
        try:
            _write(gguf, partial, on_progress)
            _sync(partial)
            os.replace(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    on_progress(_STEPS, _STEPS)


@contextmanager
def _one_at_a_time(target: Path) -> Iterator[None]:
    """Two engines of one model start together: the second waits and finds it done."""
    lock = target.with_name(f".{target.name}.lock")
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(gguf: Path, partial: Path, on_progress: Progress) -> None:
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        on_progress(0, _STEPS)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        on_progress(1, _STEPS)
        read: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, output_loading_info=True
        )
        check_report(gguf, read[1])
        on_progress(2, _STEPS)
        _plain(read[0]).save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        on_progress(3, _STEPS)
    except GliaError:
        raise
    except Exception as error:  # readers raise whatever the file makes them raise
        raise BadModelFile(
            f"{gguf}: cannot be converted: {type(error).__name__}: {error}",
            hint="fetch the file again, or give a directory of safetensors",
        ) from error


def _plain(model: Any) -> Any:
    """The same weights in a model that does not remember that it came from GGUF.

    One that does refuses to be saved.
    """
    fields = model.config.to_dict()
    for name in ("quantization_config", "_name_or_path"):
        fields.pop(name, None)
    with torch.device("meta"):
        plain = type(model)(type(model.config)(**fields))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    return plain


def _sync(directory: Path) -> None:
    for path in (*directory.iterdir(), directory):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def main(argv: Sequence[str]) -> int:
    """Convert one file; progress on stderr."""
    if len(argv) != 2:
        print("usage: python -m glia.engine.convert GGUF DIRECTORY", file=sys.stderr)
        return 2
    try:
        convert(Path(argv[0]), Path(argv[1]), _say)
    except (BadModelFile, ModelRefused) as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


def _say(done: int, total: int) -> None:
    print(f"converting: step {done} of {total}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
