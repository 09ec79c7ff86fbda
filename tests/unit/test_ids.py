"""Names and their derivation."""

from __future__ import annotations

import pytest

from glia.errors import BadRequest
from glia.graph import ids
from glia.graph.ids import ModelId, PrefixKey, ProfileId, parse_start, short

MODEL, PROFILE = ModelId(b"m" * 32), ProfileId(b"p" * 32)


@pytest.mark.spec(7)
def test_equal_material_under_another_context_is_another_name() -> None:
    derived = [
        ids.genesis_window(MODEL, PROFILE),
        ids.genesis_prefix(MODEL, PROFILE),
        ids.next_prefix(PrefixKey(bytes(MODEL)), PROFILE),
        ids.digest(MODEL + PROFILE),
        ids.derive("glia 2026 v1 profile", MODEL + PROFILE),
    ]
    assert len(set(derived)) == len(derived)
    assert {len(name) for name in derived} == {32}


def test_the_genesis_of_each_layer_model_and_profile_is_its_own() -> None:
    other_model, other_profile = ModelId(b"n" * 32), ProfileId(b"q" * 32)
    inputs = [
        (m, p, n) for m in (MODEL, other_model) for p in (PROFILE, other_profile) for n in (0, 256)
    ]
    assert len({ids.genesis_block(*each) for each in inputs}) == 8


def test_short_is_for_people() -> None:
    assert short(bytes(range(32))) == "000102030405"


def test_hex_and_back() -> None:
    name = bytes(range(32))
    assert parse_start(name.hex()) == parse_start(name.hex().upper()) == name
    assert parse_start(short(name)) == name[:6]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "00" * 3,
        "00" * 4 + "0",
        "00" * 33,
        "0g" * 32,
        "00 " * 32,
        " " + "00" * 31 + "0",
        "é" * 64,
        "x" * 10**6,
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_start(text)
    assert len(str(caught.value)) < 200
    assert caught.value.hint
