"""Files that people write: bounds, and errors with file, line and key."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from glia.errors import ConfigError, ManifestError
from glia.graph.toml import MAX_FILE_BYTES, MAX_LINES, Table, read_toml

TEXT = """\
# a comment with "quotes' and [brackets
name = "a # b"   # not a comment before here
'odd' = 1
"""
GOOD = """\
name = "a # [b] = {"
path = 'C:\\x' # "
ratio = 0.5
deep.er = 1

[part] # with a comment
flag = true
list = [
  "one", # first
  "two",
]
inline = { a = 1, b.c = "]" }
"""
KEYS = ("name", "path", "ratio", "deep", "part")


def table(text: str | bytes, keys: tuple[str, ...] = KEYS) -> Table:
    return read_toml(text, "glia.toml", ConfigError, keys)


def test_values_and_their_lines() -> None:
    root = table(GOOD)
    assert (root.text("name", None), root.text("path", None)) == ("a # [b] = {", "C:\\x")
    assert root.number("ratio", None, 0, 1) == 0.5
    assert root.table("deep", ("er",)).integer("er", None, 0, 9) == 1
    part = root.table("part", ("flag", "list", "inline"))
    assert part.flag("flag", None) is True
    assert part.texts("list", 2) == ("one", "two")
    inline = part.table("inline", ("a", "b"))
    assert inline.table("b", ("c",)).text("c", None) == "]"
    assert [root.line_of(key) for key in KEYS] == [1, 2, 3, 4, 6]
    assert [part.line_of(key) for key in ("flag", "list", "inline")] == [7, 8, 12]
    assert inline.line_of("a") == 12
    assert root.line_of("nowhere") is None


def test_defaults_stand_for_what_is_not_there() -> None:
    root = table("", ("a",))
    assert root.text("a", "x") == "x"
    assert root.texts("a", 3) == ()
    assert root.integer("a", 3, 0, 9) == 3
    assert root.number("a", 0.5, 0, 9) == 0.5
    assert root.flag("a", False) is False
    assert root.table("a", ("b",)).text("b", "y") == "y"
    assert "a" not in root
    assert "a" in table("a = 1", ("a",))


Get = Callable[[Table], Any]


@pytest.mark.parametrize(
    ("text", "get", "line", "message"),
    [
        ('a = "x"', lambda t: t.integer("a", 1, 0, 9), 1, "a: must be a whole number"),
        ("\n\na = 1.5", lambda t: t.integer("a", 1, 0, 9), 3, "a: must be a whole number"),
        ("a = true", lambda t: t.integer("a", 1, 0, 9), 1, "a: must be a whole number"),
        ("a = true", lambda t: t.number("a", 1, 0, 9), 1, "a: must be a number"),
        ("a = 10", lambda t: t.integer("a", 1, 0, 9), 1, "a: must be from 0 to 9"),
        ("a = nan", lambda t: t.number("a", 1, 0, 9), 1, "a: must be from 0 to 9"),
        ("a = inf", lambda t: t.number("a", 1, 0, 9), 1, "a: must be from 0 to 9"),
        ("a = 1", lambda t: t.text("a", ""), 1, "a: must be a string"),
        ("a = 1", lambda t: t.flag("a", True), 1, "a: must be true or false"),
        ("a = 1", lambda t: t.texts("a", 1), 1, "a: must be a list of strings"),
        ("a = [1]", lambda t: t.texts("a", 1), 1, "a: must be a list of strings"),
        ('a = ["x", "y"]', lambda t: t.texts("a", 1), 1, "a: has 2 items, 1 are allowed"),
        ("a = 1", lambda t: t.table("a", ()), 1, "a: must be a table"),
        ('a = "z"', lambda t: t.text("a", None, ("x",)), 1, "a: unknown value 'z'"),
        ("", lambda t: t.text("a", None), None, "a: missing"),
        ("\n[a]\nb = 1\nc = 2", lambda t: t.table("a", ("b",)), 4, "a.c: unknown key"),
    ],
)
def test_a_bad_value_names_file_line_and_key(
    text: str, get: Get, line: int | None, message: str
) -> None:
    root = table(text, ("a",))
    with pytest.raises(ConfigError) as caught:
        get(root)
    where = f"glia.toml:{line}" if line else "glia.toml"
    assert str(caught.value) == f"{where}: {message}"
    assert (caught.value.file, caught.value.line) == ("glia.toml", line)
    assert caught.value.key == message.split(":")[0]


def test_unknown_keys_come_before_missing_ones_and_name_the_known() -> None:
    with pytest.raises(ManifestError, match=r"^x\.model:2: sorce: unknown key$") as caught:
        read_toml('\nsorce = "a"', "x.model", ManifestError, ("source", "dtype"))
    assert caught.value.hint == "known here: dtype, source"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\na = 2", 2),
        ("a = 1\nb", 2),
        ("a = [1,\n2\n\n", 4),
        ('a = "x', 1),
        ('a = "x\n"', 1),
        ("a = '''x'''", 1),
        ('a = """x"""', 1),
        ('"a" = 1', 1),
        ("a.'b' = 1", 1),
        ("[[a]]\nb = 1", 1),
        ("[a\nb = 1", 1),
        ("a.b.c.d.e = 1", 1),
        ("[a.b.c.d.e]", 1),
        (f"\n{'k' * 65} = 1", 2),
        ("a = [[[[[1]]]]]", 1),
        ("a = {b={c={d={e={f=1}}}}}", 1),
        ("a = 'x" + "y" * 5000 + "'", 1),
        ("a = " + "1" * 4095, 1),
        ("a = [" + "1," * 2000 + "]", 1),
        ("=", 1),
        ("a = \\", 1),
        ("é = 1", 1),
        ("a = 1\r\nb = \r\n", 2),
    ],
)
def test_what_is_not_in_the_subset_names_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigError) as caught:
        table(text, ("a", "b"))
    assert (caught.value.file, caught.value.line) == ("glia.toml", line)


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        "a = '\udc80'",
        "#" * (MAX_FILE_BYTES + 1),
        "#" + "é" * (MAX_FILE_BYTES // 2),
        "\n" * MAX_LINES,
    ],
)
def test_what_is_not_text_or_too_large_is_refused(text: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"^glia\.toml: "):
        table(text)


def test_windows_line_ends_and_bytes_are_read() -> None:
    root = table(b'name = "\xc3\xa9"\r\n\r\nratio = 1\r\n')
    assert (root.text("name", None), root.line_of("ratio")) == ("é", 3)


def test_the_subset_means_what_toml_means() -> None:
    assert tomllib.loads(GOOD)["part"]["list"] == ["one", "two"]
    with pytest.raises(ConfigError, match="a key is letters"):
        table(TEXT)
