"""F34, TOML: each bomb is refused within 50 ms and 4 MiB, before the parser sees it."""

from __future__ import annotations

import tracemalloc

import pytest

from glia.errors import ManifestError
from glia.graph.manifest import parse_manifest
from glia.graph.toml import MAX_FILE_BYTES, MAX_LINE_CHARS, MAX_LINES, read_toml
from tests.pace import Stopwatch

LINE = MAX_LINE_CHARS - 10
ROWS = MAX_FILE_BYTES // (MAX_LINE_CHARS + 1)


def rows(line: str) -> str:
    return "\n".join([line[:LINE]] * ROWS)


BOMBS = {
    "dotted key": "a" + ".a" * 30_000 + " = 1",
    "dotted keys": rows("a" + ".a" * 2_000),
    "dotted header": "[" + "a." * 30_000 + "a]",
    "headers": "\n".join(f"[a.b.c.d{n}]" for n in range(5_000)),
    "open brackets": "a = " + "[" * 60_000,
    "open brackets on many lines": "a = \n" + "[\n" * 1_000,
    "inline tables": "a = " + "{a=" * 20_000,
    "inline tables on one line": "a = [" + "{b=1}," * 600 + "]",
    "closed brackets": rows("]" * 4_000),
    "digits": "a = " + "9" * 60_000,
    "digits on a line": "a = " + "9" * 4_080,
    "values": "a = [\n" + "1,\n" * 20_000 + "]",
    "values on one line": rows("a = [" + "1," * 2_000 + "]"),
    "keys": "\n".join(f"k{n} = 1" for n in range(6_000)),
    "dotted keys of one table": "\n".join(f"a.b.c.k{n} = 1" for n in range(1_020)),
    "long key": "a" * 60_000 + " = 1",
    "backslashes": rows('a = "' + "\\" * 4_000),
    "quotes": rows("'" * 4_000),
    "quote pairs": rows("''" * 2_000),
    "equals": rows("=" * 4_000),
    "spaces": rows("a" + " " * 4_000 + "= 1"),
    "comment": "#" * 100_000,
    "multi-line string": 'a = """' + "x\n" * 20_000,
    "escapes": "\n".join(f'k{n} = "' + "\\u0041" * 650 + '"' for n in range(15)),
    "dates": "\n".join(f"k{n} = 2020-01-01T00:00:00." + "1" * 4_000 for n in range(15)),
    "hex": "\n".join(f"k{n} = 0x" + "f" * 4_000 for n in range(15)),
    "underscores": "\n".join(f"k{n} = 1" + "_1" * 2_000 for n in range(15)),
    "floats": "\n".join(f"k{n} = 1." + "3" * 4_000 for n in range(15)),
    "too large": "\n" * 70_000,
    "too large, all bytes": b"\xff" * 70_000,
}


@pytest.mark.fault("F34")
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_at_once(bomb: str | bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(bomb, "warm-up")
    took = []
    for _ in range(3):  # the least of three: other processes share the cores
        watch = Stopwatch()
        with pytest.raises(ManifestError):
            parse_manifest(bomb, "bomb.model")
        took.append(watch.took_s())
    tracemalloc.start()
    with pytest.raises(ManifestError):
        parse_manifest(bomb, "bomb.model")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{min(took) * 1e3:.1f} ms 50 ms, {peak / 2**20:.2f} MiB 4 MiB")
    assert min(took) <= 0.050
    assert peak < 4 * 2**20


@pytest.mark.fault("F34")
def test_the_largest_good_file_is_read_within_the_figure() -> None:
    text = "\n".join(f"k{n} = [{'1, ' * 2}1]" for n in range(300)) + "\n" * (MAX_LINES - 400)
    watch = Stopwatch()
    read_toml(text, "good", ManifestError, [f"k{n}" for n in range(300)])
    assert watch.took_s() <= 0.050
