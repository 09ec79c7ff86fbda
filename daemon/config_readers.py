"""What a key of glia.toml may be: makers of readers, which raise ConfigError with file and line."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from typing import Any

from glia.graph.privacy import Visibility, parse_label
from glia.graph.toml import Table

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

Reader = Callable[[Table, str, Any], Any]
_UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?(B|KiB|MiB|GiB|TiB)")


def parse_size(text: str) -> int | None:
    """Bytes, written like 1GiB; None where it is no size."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(float(match[1]) * _UNITS[match[2]])


def read_size(low: int, high: int = 64 * TIB) -> Reader:
    """Bytes, written like "1GiB"."""

    def read(table: Table, key: str, default: int) -> int:
        text = table.text(key, f"{default}B")
        size = parse_size(text)
        if size is None:
            raise table.error(key, f"not a size: {text[:40]!r}", hint='write it like "1GiB"')
        if not low <= size <= high:
            raise table.error(key, f"must be from {_text(low)} to {_text(high)}")
        return size

    return read


def read_count(low: int, high: int) -> Reader:
    """A whole number."""
    return lambda table, key, default: table.integer(key, default, low, high)


def read_span(low: float, high: float) -> Reader:
    """A number."""
    return lambda table, key, default: table.number(key, default, low, high)


def read_word(*choices: str) -> Reader:
    """One of these."""
    return lambda table, key, default: table.text(key, default, choices)


def read_label() -> Reader:
    """A label that conversations can have."""

    def read(table: Table, key: str, default: str) -> str:
        text = table.text(key, default)
        label = parse_label(text)
        if label in (None, (Visibility.AGGREGATE, "")):  # the latter is nobody's
            raise table.error(key, "must be private, public or group:NAME")
        return text

    return read


def read_flag() -> Reader:
    """true or false."""
    return lambda table, key, default: table.flag(key, default)


def read_names(most: int) -> Reader:
    """At most so many, none twice."""

    def read(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        names = table.texts(key, most) if key in table else default
        if len(set(names)) < len(names):
            raise table.error(key, "has a name twice")
        return names

    return read


def read_loopback() -> Reader:
    """An address and port of this machine, "" for none."""

    def read(table: Table, key: str, default: str) -> str:
        text = table.text(key, default)
        if not text:
            return text
        host, _, port = text.rpartition(":")
        try:
            is_loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            is_loopback = False
        if not (is_loopback and port.isdecimal() and 0 < int(port) < 2**16):
            raise table.error(
                key,
                f"not a loopback address and port: {text[:60]!r}",
                hint='write "127.0.0.1:8080"',
            )
        return text

    return read


def _text(size: int) -> str:
    unit = max((u for u, n in _UNITS.items() if n <= max(size, 1)), key=_UNITS.__getitem__)
    return f"{math.floor(size / _UNITS[unit])}{unit}"
