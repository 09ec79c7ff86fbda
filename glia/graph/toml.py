"""Files that people write: a bounded subset of TOML, read with file, line and key of every mistake.

The subset: bare keys, tables, inline tables, one-line strings, numbers, booleans,
arrays. No multi-line strings, quoted keys or arrays of tables. Every such file is
TOML and means the same to any TOML reader. The bounds are checked on the text, in
one pass, before the parser sees it (SECURITY T21, F34). See spec/5-manifest.md.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator
from typing import Any

from glia.errors import ConfigError, ManifestError

MAX_FILE_BYTES = 64 * 1024
MAX_LINES = 1024
MAX_LINE_CHARS = 4096
MAX_KEY_CHARS = 64
MAX_KEY_DEPTH = 4
MAX_NESTING = 4
MAX_VALUES = 1024

FileErrorClass = type[ConfigError] | type[ManifestError]
Path = tuple[str, ...]

_LEXEME = re.compile(r""" (?P<long>\"{3}|'{3}) | "(?:[^"\\]|\\.)*" | '[^']*' | \#.* """, re.VERBOSE)
_DELIMITER = re.compile(r"[,{}\[\]]")
_WORD = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_KEY_CHARS}}}")
_HEADER = re.compile(r"\[([^\[\]]*)\]")
_AT_LINE = re.compile(r" ?\(at (?:line (\d+), column \d+|end of document)\)$")


def read_toml(
    text: str | bytes, file: str, error_cls: FileErrorClass, keys: Collection[str]
) -> Table:
    """The root table of a file.

    Args:
        text: the file's content; bytes are decoded as UTF-8.
        file: what to call it in errors.
        error_cls: what to raise for any mistake in it, here and from the tables.
        keys: the keys it may have.
    """
    source = _Source(file, error_cls)
    if len(text) > MAX_FILE_BYTES:
        raise source.error(f"larger than {MAX_FILE_BYTES} bytes")
    try:
        if isinstance(text, bytes):
            text = text.decode()
        elif len(text.encode()) > MAX_FILE_BYTES:
            raise source.error(f"larger than {MAX_FILE_BYTES} bytes")
    except UnicodeError:
        raise source.error("not UTF-8 text") from None
    source.scan(text.replace("\r\n", "\n"))
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: an integer of 5,000 digits
        place = _AT_LINE.search(str(error))
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        raise source.error(_AT_LINE.sub("", str(error)), line=line) from None
    return Table(source, (), values, keys)


class Table:
    """One table of a file. It has no keys but those it may have.

    Every getter raises the error class of the file, naming file, line and key, where
    the value is not of its type or range.
    """

    def __init__(
        self, source: _Source, path: Path, values: dict[str, Any], keys: Collection[str]
    ) -> None:
        self._source = source
        self._path = path
        self._values = values
        for key in values:
            if key not in keys:
                known = ", ".join(sorted(keys))
                raise self.error(key, "unknown key", hint=f"known here: {known}")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def line_of(self, key: str) -> int | None:
        """The line a key stands on, counted from 1."""
        return self._source.line_of((*self._path, key))

    def error(
        self, key: str, message: str, *, hint: str | None = None
    ) -> ConfigError | ManifestError:
        """A mistake at `key` (dotted: in a table inside), to be raised by the caller."""
        path = (*self._path, *key.split("."))
        return self._source.error(
            message, line=self._source.line_of(path), key=".".join(path), hint=hint
        )

    def text(self, key: str, default: str | None, choices: Collection[str] = ()) -> str:
        """A string. `default` None: the key must be there. `choices`: the only values allowed."""
        value = self._take(key, default, str, "a string")
        if choices and value not in choices:
            allowed = ", ".join(sorted(choices))
            raise self.error(key, f"unknown value {value[:80]!r}", hint=f"one of: {allowed}")
        return str(value)

    def is_list(self, key: str) -> bool:
        """Whether a list stands under `key`, for one that may be a list or something else."""
        return isinstance(self._values.get(key), list)

    def texts(self, key: str, max_items: int) -> tuple[str, ...]:
        """A list of strings; empty where the key is not there."""
        value = self._take(key, [], list, "a list of strings")
        if not all(isinstance(item, str) for item in value):
            raise self.error(key, "must be a list of strings")
        if len(value) > max_items:
            raise self.error(key, f"has {len(value)} items, {max_items} are allowed")
        return tuple(value)

    def integer(self, key: str, default: int | None, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self._take(key, default, int, "a whole number")
        return int(self._in_range(key, value, low, high))

    def number(self, key: str, default: float | None, low: float, high: float) -> float:
        """A number, whole or not, from `low` to `high`."""
        value = self._take(key, default, (int, float), "a number")
        return float(self._in_range(key, value, low, high))

    def flag(self, key: str, default: bool | None) -> bool:
        """true or false."""
        return bool(self._take(key, default, bool, "true or false"))

    def table(self, key: str, keys: Collection[str]) -> Table:
        """The table under `key`, which may have `keys`; empty where it is not there."""
        value = self._take(key, {}, dict, "a table")
        return Table(self._source, (*self._path, key), value, keys)

    def _take(self, key: str, default: Any, kind: type | tuple[type, ...], what: str) -> Any:
        value = self._values.get(key, default)
        if value is None:
            raise self.error(key, "missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"must be {what}")
        return value

    def _in_range(self, key: str, value: float, low: float, high: float) -> float:
        if not low <= value <= high:  # not a number is in no range
            raise self.error(key, f"must be from {low} to {high}")
        return value


class _Source:
    """A file's name, error class and the line of each key."""

    def __init__(self, file: str, error_cls: FileErrorClass) -> None:
        self._file = file
        self._error_cls = error_cls
        self._lines: dict[Path, int] = {}

    def error(
        self,
        message: str,
        *,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> ConfigError | ManifestError:
        return self._error_cls(message, file=self._file, line=line, key=key, hint=hint)

    def line_of(self, path: Path) -> int | None:
        """The line of a key, or of the table it stands in."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path)

    def scan(self, text: str) -> None:
        """Check the bounds and note where each key stands.

        Everything counts on strings that end on their line, so they are cut out first.
        """
        nesting, num_values = 0, 0
        table: Path = ()
        lines = text.split("\n")
        if len(lines) > MAX_LINES:
            raise self.error(f"more than {MAX_LINES} lines")
        for number, line in enumerate(lines, start=1):
            skeleton = self._skeleton(line, number)
            if nesting == 0 and skeleton.startswith("["):
                table = self._header(skeleton, number)
                self._lines.setdefault(table, number)
                continue
            keys = [self._words(part, number) for part in _keys(skeleton)]
            if nesting == 0 and keys:
                for depth in range(1, len(keys[0]) + 1):
                    self._lines.setdefault(table + keys[0][:depth], number)
            num_values += len(keys) + skeleton.count(",")
            nesting = self._nest(skeleton, nesting, number)
            if num_values > MAX_VALUES:
                raise self.error(f"more than {MAX_VALUES} values", line=number)

    def _skeleton(self, line: str, number: int) -> str:
        """The line without comment, each string replaced by one quote sign."""
        if len(line) > MAX_LINE_CHARS:
            raise self.error(f"longer than {MAX_LINE_CHARS} characters", line=number)
        num_strings = 0

        def cut(match: re.Match[str]) -> str:
            nonlocal num_strings
            if match["long"]:
                raise self.error("multi-line strings are not read", line=number)
            if match[0].startswith("#"):
                return ""
            num_strings += 1
            return '"'

        skeleton = _LEXEME.sub(cut, line)
        if skeleton.count('"') + skeleton.count("'") != num_strings:
            raise self.error("a string does not end on its line", line=number)
        return skeleton.strip(" \t")

    def _header(self, skeleton: str, number: int) -> Path:
        match = _HEADER.fullmatch(skeleton)
        if match is None:
            raise self.error("not a table header such as [kv]", line=number)
        return self._words(match[1], number)

    def _words(self, dotted: str, number: int) -> Path:
        words = tuple(word.strip(" \t") for word in dotted.split("."))
        if len(words) > MAX_KEY_DEPTH:
            raise self.error(f"a key of more than {MAX_KEY_DEPTH} words", line=number)
        if not all(_WORD.fullmatch(word) for word in words):
            raise self.error("a key is letters, digits, _ and -, at most 64", line=number)
        return words

    def _nest(self, skeleton: str, nesting: int, number: int) -> int:
        for sign in skeleton:
            nesting += (sign in "[{") - (sign in "]}")
            if nesting > MAX_NESTING:
                raise self.error(f"nested more than {MAX_NESTING} deep", line=number)
        return max(nesting, 0)


def _keys(skeleton: str) -> Iterator[str]:
    """The text of each key: what stands before an equals sign, back to a delimiter."""
    for part in skeleton.split("=")[:-1]:
        yield _DELIMITER.split(part)[-1]
