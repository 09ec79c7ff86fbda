"""Reading files that others wrote: regular files only, size capped first, strict JSON.

Nothing here trusts a name, a size or a nesting depth that a file claims.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from glia.errors import BadModelFile

KIB = 1024
MIB = 1024 * KIB

CONFIG_BYTES = MIB
CONFIG_VALUES = 32768
TOKENIZER_BYTES = 128 * MIB
TOKENIZER_VALUES = 2**24


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe, a device or a directory is refused unopened.

    Raises: BadModelFile.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise BadModelFile(f"{path}: {_reason(error)}", hint=f"look at it: ls -l {path}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BadModelFile(f"{path}: not a regular file", hint=f"look at it: ls -l {path}")
    return os.fdopen(fd, "rb")


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """The whole file, at most `max_bytes` of it. Raises: BadModelFile."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise BadModelFile(f"{path}: {size:,} bytes, more than the {max_bytes:,} allowed")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise BadModelFile(f"{path}: grew past the {max_bytes:,} bytes allowed while read")
    return data


def read_json(
    path: Path, max_bytes: int = CONFIG_BYTES, max_values: int = CONFIG_VALUES
) -> dict[str, Any]:
    """A JSON object, strictly: UTF-8, no key twice, no NaN, bounded depth and number of values.

    Raises: BadModelFile.
    """
    return parse_json(read_bounded(path, max_bytes), str(path), max_values)


def parse_json(data: bytes, what: str, max_values: int = CONFIG_VALUES) -> dict[str, Any]:
    """As read_json, of bytes; `what` names them in errors."""
    # A value of two bytes becomes an object of sixty: counted before any is made.
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > max_values:
        raise BadModelFile(f"{what}: more than {max_values:,} values")
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise BadModelFile(f"{what}: nested too deeply") from None
    except ValueError as error:
        raise BadModelFile(f"{what}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadModelFile(f"{what}: not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return getattr(error, "strerror", None) or str(error)
