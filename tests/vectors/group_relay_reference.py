"""Reads p2p/spec/group-relay.md by the page alone; shares no code with ours.

Refusals are ValueError.
"""

from blake3 import blake3

from tests.vectors.exchange_reference import _value


def read_frame(data):
    """What a frame says, as a list that begins with its name."""
    value, end = _value(data, 4)
    if int.from_bytes(data[:4], "big") != len(data) - 4 or end != len(data):
        raise ValueError("frame")
    return value


def read_question(data):
    """Which question, and the name in it."""
    kind, name = read_frame(data)
    if kind not in ("GetTips", "GetRows") or not _is_name(name):
        raise ValueError("question")
    return kind, name


def read_tips(data):
    """Names, and what to ask for more after."""
    kind, names, *rest = read_frame(data)
    (after,) = rest or [bytes(32)]
    if kind != "Tips" or len(names) > 1024 or not all(map(_is_name, [*names, after])):
        raise ValueError("tips")
    return names, after


def read_rows(data, name):
    """The windows from the one of that name back: (name, number, alias, links) of each."""
    kind, rows = read_frame(data)
    if kind != "Rows" or len(rows) > 256:
        raise ValueError("rows")
    found, number, is_over = [], None, False
    for row_number, hold, alias, encoding, links in rows:
        if is_over or (number is not None and row_number != number - 1):
            raise ValueError("order")
        if not (1 <= row_number <= 2**18 and 0 <= hold < 2**53 and _is_name(alias)):
            raise ValueError("row")
        if encoding[:4] != b"GENC" or blake3(encoding).digest() != name:
            raise ValueError("name")
        for before, base, sealed in links:
            if not (0 <= before < 2**32 and _is_name(base) and 1 <= len(sealed) <= 1024):
                raise ValueError("link")
        if len(links) > 8:
            raise ValueError("links")
        found.append((name, row_number, alias, links))
        is_over, name, number = encoding[6] == 1, encoding[52:84], row_number
    return found


def _is_name(value):
    return isinstance(value, bytes) and len(value) == 32
