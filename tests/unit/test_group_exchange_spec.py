"""p2p/spec/group-exchange.md against the code, the vectors, and a reader that shares no code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from daemon.group_egress import CHECK_AGAIN_S
from glia.errors import HashMismatch, IntegrityError, RemoteProtocolError
from glia.graph.capability import MAX_CHAIN_BYTES
from glia.graph.group import Epoch
from glia.graph.sealed_link import SEALED_LINK_BYTES, open_link
from p2p.group_asking import MAX_EPOCHS
from p2p.showing import decode_show
from tests.architecture import ROOT
from tests.unit.test_exchange_spec import HEADINGS
from tests.vectors import exchange_reference, group_exchange_reference, make_group_exchange
from tests.vectors.make_encrypted import EPOCH
from tests.vectors.make_group_exchange import LINK, SEALED_LINK, SHOWN

PAGE = (ROOT / "p2p/spec/group-exchange.md").read_text()
VECTORS = json.loads(make_group_exchange.FILE.read_text())


def test_the_vectors_are_what_the_code_writes() -> None:
    assert make_group_exchange.build() == VECTORS


def test_another_reader_reads_the_same() -> None:
    frames = {key: bytes.fromhex(value) for key, value in VECTORS["frames"].items()}
    assert group_exchange_reference.read_show(frames["show"]) == (SHOWN.group, SHOWN.capability)
    assert decode_show(frames["show"][4:]) == SHOWN
    alias = group_exchange_reference.asked_as(bytes.fromhex(VECTORS["prefix_key"]), EPOCH.key)
    nobody = bytes(32)
    find = exchange_reference.read_frame(frames["find"])
    assert find == ["Find", nobody, nobody, [[16, alias]], [], False]
    sealed = bytes.fromhex(VECTORS["link"]["sealed"])
    assert group_exchange_reference.open_link(sealed, EPOCH.key) == LINK.encoding
    assert open_link([EPOCH], sealed) == LINK.encoding


@pytest.mark.parametrize("key", sorted(VECTORS["refused"]))
def test_what_is_refused_is_refused_by_both(key: str) -> None:
    frame = bytes.fromhex(VECTORS["refused"][key])
    with pytest.raises((ValueError, TypeError)):
        group_exchange_reference.read_show(frame)
    with pytest.raises(RemoteProtocolError):
        decode_show(frame[4:])


@pytest.mark.parametrize("at", [0, 1, 33, 65, 372])
def test_a_sealed_link_that_was_altered_is_none(at: int) -> None:
    changed = bytearray(SEALED_LINK)
    changed[at] ^= 1
    with pytest.raises(IntegrityError):
        open_link([EPOCH], bytes(changed))
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind
        group_exchange_reference.open_link(bytes(changed), EPOCH.key)
    with pytest.raises(HashMismatch):
        open_link([Epoch(9, b"9" * 32)], SEALED_LINK)


def test_the_page_has_its_parts_and_examples_that_hold() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == HEADINGS
    examples = re.findall(r"^    \$ python (-c '.*')\n    (.*)$", PAGE, re.MULTILINE)
    assert examples
    for command, output in examples:
        words = [sys.executable, *shlex.split(command)]
        printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
        assert printed.stdout.strip() == output


def test_the_limits_that_the_page_names() -> None:
    assert f"{MAX_CHAIN_BYTES:,} bytes" in PAGE
    assert f"{SEALED_LINK_BYTES} bytes" in PAGE
    assert f"{CHECK_AGAIN_S:.0f} s" in PAGE
    assert f"{MAX_EPOCHS} newest epochs" in PAGE
