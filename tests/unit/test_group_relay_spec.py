"""p2p/spec/group-relay.md against the code, the vectors, and a reader that shares no code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import msgspec
import pytest

from glia.errors import RemoteProtocolError
from glia.graph.ids import WindowId
from p2p.group_relay import (
    FIRST,
    MAX_CHAIN_BYTES,
    MAX_ROW_LINKS,
    MAX_ROWS,
    MAX_TIPS,
    MAX_WINDOW_BYTES,
    NothingKept,
    Row,
    Rows,
    Tips,
    answer_relay,
)
from tests.architecture import ROOT
from tests.unit.test_exchange_spec import HEADINGS
from tests.vectors import group_relay_reference, make_group_relay
from tests.vectors.make_group_relay import ROWS, TIP, WINDOWS

PAGE = (ROOT / "p2p/spec/group-relay.md").read_text()
VECTORS = json.loads(make_group_relay.FILE.read_text())
FRAMES = {key: bytes.fromhex(value) for key, value in VECTORS["frames"].items()}


class Known:
    """A catalogue of the vectors' chain."""

    def tips(self, after: bytes) -> Tips:
        return Tips((TIP.window_id,) if after < TIP.window_id else ())

    def row(self, name: WindowId) -> Row | None:
        names = [each.window.window_id for each in WINDOWS][::-1]
        return ROWS.rows[names.index(name)] if name in names else None


def test_the_vectors_are_what_the_code_writes() -> None:
    assert make_group_relay.build() == VECTORS


def test_another_reader_reads_the_same() -> None:
    read = group_relay_reference
    assert read.read_question(FRAMES["get tips"]) == ("GetTips", FIRST)
    assert read.read_question(FRAMES["get rows"]) == ("GetRows", TIP.window_id)
    assert read.read_tips(FRAMES["tips"]) == ([TIP.window_id], FIRST)
    assert read.read_tips(FRAMES["tips, and more"])[1] != FIRST
    rows = read.read_rows(FRAMES["rows"], TIP.window_id)
    assert [row[0] for row in rows] == [each.window.window_id for each in WINDOWS][::-1]
    assert [(row[1], row[2]) for row in rows] == [(r.num_windows, r.alias) for r in ROWS.rows]


def test_questions_are_answered_so() -> None:
    for asked, said in (("get tips", "tips"), ("get rows", "rows")):
        assert answer_relay(Known(), FRAMES[asked][4:]) == FRAMES[said][4:]
    assert answer_relay(NothingKept(), FRAMES["get rows"][4:]) == FRAMES["no rows"][4:]


@pytest.mark.parametrize("key", sorted(VECTORS["refused questions"]))
def test_a_question_that_is_none(key: str) -> None:
    frame = bytes.fromhex(VECTORS["refused questions"][key])
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        group_relay_reference.read_question(frame)
    with pytest.raises(RemoteProtocolError):
        answer_relay(Known(), frame[4:])


@pytest.mark.parametrize("key", sorted(VECTORS["refused rows"]))
def test_rows_that_are_none(key: str) -> None:
    frame = bytes.fromhex(VECTORS["refused rows"][key])
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        group_relay_reference.read_rows(frame, TIP.window_id)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(frame[4:], type=Rows)


def test_the_page_has_its_parts_limits_and_examples_that_hold() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == HEADINGS
    for limit in (MAX_TIPS, MAX_ROWS, MAX_ROW_LINKS):
        assert f"| {limit:,} |" in PAGE
    for limit in (MAX_CHAIN_BYTES, MAX_WINDOW_BYTES):
        assert f"{limit >> 20} MiB" in PAGE
    examples = re.findall(r"^    \$ python (-c '.*')\n    (.*)$", PAGE, re.MULTILINE)
    assert examples
    for words, said in examples:
        command = [sys.executable, *shlex.split(words)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        assert found.stdout.strip() == said
