"""gliad links against a gliad that says what it is told to."""

from __future__ import annotations

from typing import Any

from glia.errors import UnknownModel
from glia.local import messages as m
from glia.local.network_values import LinkValue
from tests.cli_parts import MODEL_ID, World, say, sent
from tests.fake_gliad import FakeGliad

TIP = b"\xab" * 32


def link(number: int, *, own: bool) -> LinkValue:
    signer = bytes([number]) * 32
    source = "published" if own else "heard"
    trust = "own" if own else "stranger"
    return LinkValue(
        signer,
        own,
        source,
        "next_block",
        MODEL_ID,
        b"b" * 32,
        TIP,
        16,
        32,
        number,
        1000,
        trust,
        own,
    )


def test_links_are_listed_with_who_signed_them(gliad: FakeGliad, world: World, capfd: Any) -> None:
    world.links = [link(1, own=True), *(link(2, own=False) for _ in range(4))]
    said = say(capfd, "links")
    assert said.code == 0, said.err
    head, first, second, *_ = said.out.splitlines()
    assert head.split() == ["SIGNER", "TRUST", "SOURCE", "WINDOWS", "TIP", "BASE", "AGE"]
    assert first.split()[:8] == ["01" * 6, "(this", "node)", "own", "published", "16", "to", "32"]
    assert second.split()[:5] == ["02" * 6, "stranger,", "not", "taken", "heard"]
    assert len(said.out.splitlines()) == 6  # in several parts
    found = say(capfd, "links", TIP.hex(), "--json").json
    assert sent(gliad, m.Links).tip == TIP
    assert (found[0]["signer"], found[0]["own"], found[0]["num_windows"]) == ("01" * 32, True, 32)


def test_links_of_a_model(gliad: FakeGliad, world: World, capfd: Any) -> None:
    assert say(capfd, "links", "--model", "tiny", "--json").json == []
    assert sent(gliad, m.Links).model_id == MODEL_ID
    assert say(capfd, "links", "--model", "nobody").code == UnknownModel.exit_code
    for bad in ("xyz", "abcd"):
        said = say(capfd, "links", bad)
        assert (said.code, "no window's id" in said.err) == (2, True)
