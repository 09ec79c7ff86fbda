"""The pages of p2p/spec against the code, the vectors, and a reader that shares no code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from glia.errors import RemoteProtocolError
from p2p import messages as m
from p2p.provider import ServingLimits
from p2p.source import STALL_S
from tests.architecture import ROOT
from tests.vectors import exchange_reference, make_exchange

PAGES = [ROOT / "p2p/spec/exchange.md", ROOT / "p2p/spec/particle.md"]
VECTORS = json.loads(make_exchange.FILE.read_text())
HEADINGS = [
    "Purpose", "Non-goals", "Layout", "Fields", "Limits", "Errors", "Why not", "Example",
    "Vectors", "Changes",
]  # fmt: skip
DECODERS = {
    "find": m.decode_find_request,
    "find anything": m.decode_find_request,
    "get records": m.decode_find_request,
    "next blocks": m.decode_find_request,
    "found none": m.decode_found,
    "found": m.decode_found,
    "part": m.decode_part,
    "last part": m.decode_part,
    "links": m.decode_links,
    "get blocks": m.decode_blocks_request,
    "have": m.decode_blocks_request,
    "held": m.decode_held,
}


def test_the_vectors_are_what_the_code_writes() -> None:
    assert make_exchange.build() == VECTORS


@pytest.mark.parametrize("key", make_exchange.MESSAGES)
def test_a_message_is_read_as_it_was_written(key: str) -> None:
    frame = bytes.fromhex(VECTORS["frames"][key])
    assert DECODERS[key](frame[4:]) == make_exchange.MESSAGES[key]


@pytest.mark.parametrize("key", make_exchange.MESSAGES)
def test_another_reader_reads_the_same(key: str) -> None:
    read = exchange_reference.read_frame(bytes.fromhex(VECTORS["frames"][key]))
    message = make_exchange.MESSAGES[key]
    assert read == [type(message).__name__, *map(plain, msgspec.structs.astuple(message))]


def plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    return [plain(each) for each in value] if isinstance(value, tuple) else value


def test_a_later_revision_is_read_as_far_as_it_is_known() -> None:
    later = bytes.fromhex(VECTORS["later"])
    assert m.decode_blocks_request(later[4:]) == make_exchange.MESSAGES["have"]
    assert exchange_reference.read_frame(later)[:2] == ["Have", [bytes([7]) * 32]]


@pytest.mark.parametrize("key", sorted(VECTORS["refused"]))
def test_what_is_refused_is_refused_by_both(key: str) -> None:
    frame = bytes.fromhex(VECTORS["refused"][key])
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        exchange_reference.read_frame(frame)
    if key not in ("empty", "too long"):  # of frames: tests/faults/test_wire_frames.py
        with pytest.raises(RemoteProtocolError):
            m.decode_blocks_request(frame[4:])


def test_particle_requests_and_answers() -> None:
    particle = {key: bytes.fromhex(value) for key, value in VECTORS["particle"].items()}
    assert exchange_reference.read_particle_request(particle["request"]) == bytes([7]) * 32
    assert exchange_reference.read_body(particle["answer"]) == b"bytes"
    assert exchange_reference.read_body(particle["absent"]) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_its_parts_and_examples_that_hold(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    examples = re.findall(r"^    \$ python (-c '.*')\n    (.*)$", text, re.MULTILINE)
    assert examples
    for command, output in examples:
        words = [sys.executable, *shlex.split(command)]
        printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        assert printed.stdout.strip() == output


def test_the_limits_that_the_page_names() -> None:
    text = PAGES[0].read_text()
    limits = ServingLimits()
    for number in (
        m.MAX_KEYS, m.MAX_WINDOWS, m.MAX_RECORD_BYTES, m.MAX_WANTS, m.MAX_LINK_BYTES, 65_536
    ):  # fmt: skip
        assert f"{number:,}" in text
    assert f"| {m.MAX_CLASSES}, of 1" in text
    assert f"| {m.MAX_CANDIDATES}, with {m.MAX_LINKS} links" in text
    assert f"| {m.MAX_PART_RECORDS}, of" in text
    assert f"| {limits.idle_s:.0f} s |" in text
    assert f"hold much of {limits.total_bytes >> 20} MiB" in text
    assert f"after {STALL_S} s" in text
