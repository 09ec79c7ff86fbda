"""The only place that prints. Data goes to stdout, everything else to stderr.

Tables without borders, ids cut to 12, sizes for people; --json for programs. Nothing is
said by colour alone.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import msgspec

from daemon.commands import addressed
from glia.errors import (
    BadCheckpoint,
    BadModelFile,
    BadRequest,
    CapacityError,
    ConfigError,
    EngineError,
    GliaError,
    ManifestError,
    ModelError,
    NotFound,
    NotPermitted,
    ProtocolError,
    UserError,
)

# For an error that comes without a hint of its own: what its class lets one say.
_LOG = "look at gliad.log in the data dir"
_HINTS: dict[type[BaseException], str] = {
    BadCheckpoint: "`checkpoint --to FILE` writes one, on the Body that has the conversations",
    BadModelFile: "get the model's files again, or convert them anew",
    CapacityError: "gliad status shows what is full",
    ConfigError: "the project's glia.toml shows every key, with default and unit",
    EngineError: f"try again; if it stays so, {_LOG}",
    GliaError: _LOG,
    ManifestError: "glia/spec/5-manifest.md shows every key and its values",
    ModelError: "gliad models shows those that can be used",
    NotFound: "gliad run ... --json prints a tip that is known here",
    NotPermitted: "gliad group list shows what this node may",
    ProtocolError: "gliad stop, then gliad start: both sides must be of one version",
    UserError: "gliad --help",
}

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS_S = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_PLAIN_LINE_S = 5.0


def as_json(value: Any) -> None:
    """One JSON value and a line end, to stdout. Bytes in it are written as hex."""
    line = msgspec.json.encode(to_json(value))
    _out(msgspec.json.format(line, indent=2).decode() + "\n")


def json_line(value: Any) -> None:
    """One JSON value on a line of its own, to stdout, at once: for what comes one by one."""
    _out(msgspec.json.encode(to_json(value)).decode() + "\n")
    flush()


def to_json(value: Any) -> Any:
    """Structs, lists and bytes as what JSON has: a struct is an object, bytes are hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, msgspec.Struct):
        return {name: to_json(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns by the widest cell, two spaces apart, to stdout; for people, who see each cell as
    `plain` has it."""
    lines = [tuple(head), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        _out("  ".join(cells).rstrip() + "\n")


def plain(text: str) -> str:
    """Without what a terminal would obey: others gave some of the names that are shown."""
    return "".join(each if each.isprintable() else "?" for each in text)


def line(text: str) -> None:
    """A line of data, to stdout."""
    _out(text + "\n")


def data(what: bytes) -> None:
    """Bytes, to stdout, as they are."""
    with _writing():
        sys.stdout.buffer.write(what)


def piece(text: str) -> None:
    """A piece of an answer, to stdout, at once."""
    _out(text)
    flush()


def flush() -> None:
    """Let stdout have all of it. Raises: BadRequest where it cannot be written."""
    with _writing():
        sys.stdout.flush()


def _out(text: str) -> None:
    with _writing():
        sys.stdout.write(text)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise BadRequest(
            f"standard output cannot be written: {error.strerror}",
            hint="gliad VERB > FILE" if error.errno == errno.EBADF else "df -h",
        ) from error


def discard_output() -> None:
    """What is left of stdout goes nowhere: Python would complain again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """A line for people, to stderr."""
    sys.stderr.write(text + "\n")


def aside(text: str) -> None:
    """As `note`, dim on a terminal: beside what was asked for."""
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
    note(text if is_plain or not sys.stderr.isatty() else f"\x1b[2m{text}\x1b[0m")


def error(problem: GliaError, data_dir: Path | None = None) -> None:
    """What went wrong, and in the last line what to type, to the node of `data_dir`."""
    sys.stderr.write(f"error: {problem.message}\n")
    hint = problem.hint or next(_HINTS[cls] for cls in type(problem).__mro__ if cls in _HINTS)
    sys.stderr.write(f"hint: {addressed(hint, data_dir) if data_dir else hint}\n")


def size(num_bytes: int) -> str:
    """1,536 MiB is 1.5 GiB."""
    value, unit = float(num_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{value:.0f} {_UNITS[unit]}"
        if value >= 100 or unit == 0
        else f"{value:.1f} {_UNITS[unit]}"
    )


def span(seconds: float) -> str:
    """Ninety minutes are 1 h: the largest unit that fits, rounded down."""
    for length_s, unit in _SPANS_S:
        if seconds >= length_s:
            return f"{seconds // length_s:.0f} {unit}"
    return "0 s"


class ProgressLine:
    """Says on stderr how far something is.

    On a terminal in one line, which is taken away again; elsewhere in plain lines, at most
    one every few seconds, so that what is quick says nothing.
    """

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._shown = ""
        self._is_terminal = self._stream.isatty()
        self._clock = clock
        self._told_s = clock()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show `done` of `total` (0: unknown) of `what`."""
        text = f"{what} {100 * done // total}%" if total else what
        if self._is_terminal:
            self._draw(text)
        elif self._clock() - self._told_s >= _PLAIN_LINE_S:
            self._told_s = self._clock()
            self._stream.write(text + "\n")
            self._stream.flush()

    def clear(self) -> None:
        """Take the line away before something else is written."""
        if self._shown:
            self._draw("")

    def _draw(self, text: str) -> None:
        if text != self._shown:
            self._stream.write("\r" + text.ljust(len(self._shown)) + ("" if text else "\r"))
            self._stream.flush()
            self._shown = text
