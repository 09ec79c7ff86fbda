"""Links against vectors, against a reader that shares no code, and against their windows."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glia.errors import BadRequest, MalformedParticle
from glia.graph.block import parse_block
from glia.graph.cid import cid_bytes, cid_text, name_of_cid, parse_cid
from glia.graph.ids import BlockId, ModelId, WindowId, genesis_prefix, genesis_window
from glia.graph.layer_link import LayerLink, check_target, layer_links
from glia.graph.link import (
    LINK_BYTES,
    Claim,
    Link,
    LinkKind,
    accept_link,
    check_link,
    decode_link,
    parse_link,
    sign_link,
)
from glia.graph.neuron import NeuronId, Signer, is_signed
from glia.graph.profile import PositionMode
from glia.graph.spans import claims
from tests.builders import MODEL, TINY, Chain, make_chain, make_profile
from tests.vectors import link_reference, make, make_link

Json = dict[str, Any]

SIGNER = Signer(bytes(range(32)))
NOW_S = 1_800_000_000


def load(name: str) -> Json:
    content: Json = json.loads((make.HERE / name).read_text())
    return content


def sign(claim: Claim) -> Link:
    return sign_link(SIGNER, claim, 7, NOW_S)


@pytest.fixture(scope="module")
def chain() -> Chain:
    return make_chain(20)


@pytest.fixture(scope="module")
def tip_claim(chain: Chain) -> Claim:
    """Of windows 16 to 19."""
    return claims(chain.records, 0)[1]


# -- vectors -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(make_link.build()))
def test_the_files_are_what_the_command_makes(name: str) -> None:
    assert (make.HERE / name).read_text() == make.render(make_link.build()[name])


def test_the_reference_shares_no_code() -> None:
    tree = ast.parse(Path(link_reference.__file__).read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported == {"struct", "hashlib", "blake3"}


@pytest.mark.spec(17)
@pytest.mark.parametrize("case", load("link.json")["cases"], ids=lambda case: case["kind"])
def test_a_link_is_read_as_the_reference_reads_it(case: Json) -> None:
    data = bytes.fromhex(case["encoding"])
    link, again = parse_link(data), link_reference.read_link(data)
    claim = link.claim
    assert link.encoding == data
    assert link.link_id.hex() == case["link_id"]
    assert decode_link(data) == link
    read = {
        "kind": claim.kind.name.lower(),
        "num_before": claim.num_before,
        "num_windows": claim.num_windows,
        "sequence": link.sequence,
        "time": link.time_s,
        "model": claim.model_id,
        "profile": claim.profile_id,
        "base": claim.base,
        "tip": claim.tip,
        "key": claim.prefix_key,
        "signer": link.signer,
    }
    assert read == again
    plain = {key: value.hex() if isinstance(value, bytes) else value for key, value in read.items()}
    assert plain == {key: case[key] for key in plain}


@pytest.mark.spec(17)
@pytest.mark.parametrize("case", load("link.json")["refused"], ids=lambda case: case["why"])
def test_refused_links(case: Json) -> None:
    good = bytes.fromhex(load("link.json")["cases"][0]["encoding"])
    out = bytearray(good)
    if "at" in case:
        patch = bytes.fromhex(case["bytes"])
        out[case["at"] : case["at"] + len(patch)] = patch
    bad = bytes(out[: case.get("length", len(out))].ljust(case.get("length", 0), b"\0"))
    assert bad != good
    with pytest.raises(MalformedParticle):
        parse_link(bad)
    with pytest.raises(ValueError, match=r"\w"):
        link_reference.read_link(bad)


@pytest.mark.parametrize("case", load("cid.json")["cases"], ids=lambda case: case["name"][:8])
def test_cids(case: Json) -> None:
    name = bytes.fromhex(case["name"])
    assert (cid_bytes(name), cid_text(name)) == link_reference.cid(name)
    assert (cid_bytes(name).hex(), cid_text(name)) == (case["bytes"], case["text"])
    assert name_of_cid(cid_bytes(name)) == parse_cid(cid_text(name)) == name


@pytest.mark.spec(58)
def test_a_block_id_is_a_cid_and_a_cid_a_block_id(chain: Chain) -> None:
    for block_id, _ in chain.blocks():
        assert parse_cid(cid_text(block_id)) == name_of_cid(cid_bytes(block_id)) == block_id
    assert parse_cid(cid_text(chain.tip)) == chain.tip


def test_other_cids_and_spellings_are_refused() -> None:
    text, data = cid_text(bytes(range(32))), cid_bytes(bytes(range(32)))
    spellings = (
        text.upper(), text[1:], text + "a", text[:-1], text[:-1] + chr(ord(text[-1]) + 1),
        "z" + text[1:], text[:-2] + "=a", text[:20] + "1" + text[21:], text + "\n", " " + text[1:],
        text[:-1] + "é", "",
    )  # fmt: skip
    for other in spellings:
        with pytest.raises(BadRequest):
            parse_cid(other)
    for at, byte in ((0, 0), (1, 0x70), (2, 0x12), (3, 31)):
        with pytest.raises(BadRequest):
            name_of_cid(data[:at] + bytes([byte]) + data[at + 1 :])
    for other_data in (b"", data[:-1], data + b"\0"):
        with pytest.raises(BadRequest):
            name_of_cid(other_data)


# -- signatures ----------------------------------------------------------------------------


def weak_keys() -> list[bytes]:
    """Every spelling of every point of order 1, 2, 4 and 8, found by the reference's arithmetic."""
    ref, number = link_reference, 2
    while True:
        number += 1
        try:
            point = ref.times(ref.L, ref.point_of(number.to_bytes(32, "little")))
        except ValueError:
            continue
        if ref.times(4, point) != (0, 1):
            break  # of order 8: its multiples are all there are
    values = {ref.times(n, point)[1] for n in range(1, 9)}
    values |= {value + ref.P for value in values if value + ref.P < 2**255}
    return [(y | sign << 255).to_bytes(32, "little") for y in values for sign in (0, 1)]


def test_a_key_that_anybody_can_sign_for_is_no_neuron() -> None:
    found = weak_keys()
    assert len(found) == 14  # 5 values of y, two of these in two spellings; either sign
    identity = (1).to_bytes(32, "little")
    for key in found:
        assert not is_signed(NeuronId(key), b"anything", identity + bytes(32))


def test_what_is_no_key_or_no_signature_signs_nothing() -> None:
    signature = SIGNER.sign(b"x")
    assert is_signed(SIGNER.neuron, b"x", signature)
    assert not is_signed(SIGNER.neuron, b"y", signature)
    assert not is_signed(SIGNER.neuron, b"x", signature[:-1])
    assert not is_signed(NeuronId(b"\2" + bytes(31)), b"x", signature)
    assert not is_signed(NeuronId(SIGNER.neuron[:31]), b"x", signature)
    larger = int.from_bytes(signature[32:], "little") + link_reference.L
    malleable = signature[:32] + larger.to_bytes(32, "little")
    assert not is_signed(SIGNER.neuron, b"x", malleable)


def test_a_signature_over_the_body_alone_is_none(tip_claim: Claim) -> None:
    """The context keeps a link apart from anything else that a neuron signs."""
    body = sign(tip_claim).encoding[:-64]
    with pytest.raises(MalformedParticle):
        parse_link(body + SIGNER.sign(body))


@pytest.mark.fault("F26")
def test_a_link_of_the_future_is_refused_past_two_minutes(tip_claim: Claim) -> None:
    link = sign(tip_claim)
    day = 24 * 3600
    assert accept_link(link.encoding, NOW_S + day) == link
    assert accept_link(link.encoding, NOW_S - 120) == link
    for now_s in (NOW_S - 121, NOW_S - 3600, NOW_S - day, 0):
        with pytest.raises(MalformedParticle, match="in the future"):
            accept_link(link.encoding, now_s)
    with pytest.raises(MalformedParticle):
        accept_link(sign_link(SIGNER, tip_claim, 0, 2**64 - 1).encoding, NOW_S)


def test_what_would_be_refused_is_not_signed(tip_claim: Claim, chain: Chain) -> None:
    root = genesis_window(MODEL, TINY.profile_id)
    for bad in (
        replace(tip_claim, num_before=20),
        replace(tip_claim, num_windows=16 + 257),
        replace(tip_claim, num_before=0),
        replace(tip_claim, base=root),
        replace(tip_claim, tip=tip_claim.base),
        replace(tip_claim, num_windows=2**32),
    ):
        with pytest.raises(ValueError, match="not a link"):
            sign(bad)
    for sequence, time_s in ((-1, 0), (2**64, 0), (0, -1), (0, 2**64)):
        with pytest.raises(ValueError, match="not a link"):
            sign_link(SIGNER, tip_claim, sequence, time_s)


# -- against its windows ---------------------------------------------------------------------


@pytest.mark.spec(18, 23)
def test_a_link_attests_the_windows_after_its_base(chain: Chain, tip_claim: Claim) -> None:
    check_link(tip_claim, chain.keys[15], chain.records[16:])
    root = genesis_prefix(MODEL, TINY.profile_id)
    check_link(claims(chain.records, 0)[0], root, chain.records[:16])
    for records in (
        chain.records,
        chain.records[15:],
        chain.records[17:],
        chain.records[16:19],
        (),
    ):
        with pytest.raises(MalformedParticle):
            check_link(tip_claim, chain.keys[15], records)


@pytest.mark.spec(18)
def test_a_link_that_disagrees_with_its_windows_is_refused(chain: Chain, tip_claim: Claim) -> None:
    other = make_chain(20, seed=1)
    far = make_chain(4, tokens=chain.tokens[16 * 16 :])  # the same tokens from genesis
    first, *rest = chain.records[16:]
    cases: list[tuple[Claim, tuple[Any, ...]]] = [
        (replace(tip_claim, tip=other.tip), chain.records[16:]),
        (replace(tip_claim, base=WindowId(bytes(32))), chain.records[16:]),
        (replace(tip_claim, prefix_key=chain.keys[18]), chain.records[16:]),
        (replace(tip_claim, num_before=15, num_windows=19), chain.records[16:]),
        (replace(tip_claim, num_before=17, num_windows=21), chain.records[16:]),
        (replace(tip_claim, model_id=ModelId(bytes(32))), chain.records[16:]),
        (replace(tip_claim, profile_id=make_profile(num_layers=3).profile_id), chain.records[16:]),
        (replace(tip_claim, kind=LinkKind.SPLICE), chain.records[16:]),
        (tip_claim, other.records[16:]),
        (tip_claim, far.records),
        (tip_claim, (first, *other.records[17:19], rest[-1])),
        (tip_claim, (replace(first, position_start=0), *rest)),
    ]
    for claim, records in cases:
        with pytest.raises(MalformedParticle):
            check_link(claim, chain.keys[15], records)
    with pytest.raises(MalformedParticle):
        check_link(tip_claim, chain.keys[14], chain.records[16:])


@pytest.mark.spec(18)
def test_windows_with_the_right_tokens_that_do_not_follow_are_refused(
    chain: Chain, tip_claim: Claim
) -> None:
    twin = make_chain(20, tokens=chain.tokens, numerics_class="canonical")
    mixed = (*chain.records[16:18], twin.records[18], chain.records[19])
    jumped = replace(chain.records[17], position_start=chain.records[18].position_start)
    two = replace(tip_claim, tip=jumped.window_id, prefix_key=chain.keys[17], num_windows=18)
    for claim, records in ((tip_claim, mixed), (two, (chain.records[16], jumped))):
        with pytest.raises(MalformedParticle):
            check_link(claim, chain.keys[15], records)


# -- layer by layer --------------------------------------------------------------------------


def layers_of(chain: Chain, index: int) -> list[LayerLink]:
    """The layer links to a window, in the name of the span that attests it."""
    (claim,) = [c for c in claims(chain.records, 0) if c.num_before <= index < c.num_windows]
    before = chain.records[index - 1] if index else None
    return layer_links(sign(claim), chain.profile, before, chain.records[index])


@pytest.mark.spec(16, 17, 18)
@pytest.mark.parametrize("mode", list(PositionMode))
@pytest.mark.parametrize("index", [0, 1, 16, 19])
def test_layer_links_say_what_the_headers_say(mode: PositionMode, index: int) -> None:
    chain = make_chain(20, profile=make_profile(mode=mode, num_layers=3))
    links = layers_of(chain, index)
    assert [link.layer for link in links] == [0, 1, 2]
    for link, particle in zip(links, chain.particles[index], strict=True):
        block = parse_block(particle, chain.profile)
        check_target(link, block, chain.profile)
        assert (link.kind, link.signer) == (LinkKind.NEXT_BLOCK, SIGNER.neuron)
        assert (link.from_block, link.to_block) == (block.prev, block.block_id)
        assert (link.model_id, link.position_start) == (MODEL, 16 * index)


@pytest.mark.spec(18)
@pytest.mark.parametrize("mode", list(PositionMode))
def test_a_target_whose_header_disagrees_is_refused(mode: PositionMode) -> None:
    chain = make_chain(3, profile=make_profile(mode=mode))
    link = layers_of(chain, 2)[1]
    block = parse_block(chain.particles[2][1], chain.profile)
    wrong = [
        replace(link, to_block=BlockId(bytes(32))),
        replace(link, from_block=chain.records[0].blocks[1]),
        replace(link, layer=0),
        replace(link, model_id=ModelId(bytes(32))),
    ]
    if mode is PositionMode.ABSOLUTE:
        wrong.append(replace(link, position_start=16))
    for bad in wrong:
        with pytest.raises(MalformedParticle):
            check_target(bad, block, chain.profile)
    other = parse_block(chain.particles[2][0], chain.profile)
    with pytest.raises(MalformedParticle):
        check_target(link, other, chain.profile)


@pytest.mark.spec(18)
def test_records_that_do_not_follow_have_no_layer_links(chain: Chain, tip_claim: Claim) -> None:
    link, records = sign(tip_claim), chain.records
    other = make_chain(20, seed=1).records
    cases = [
        (records[16], records[18]),
        (None, records[17]),
        (other[16], records[17]),
        (records[16], replace(records[17], position_start=0)),
        (records[16], replace(records[17], model_id=ModelId(bytes(32)))),
        (records[16], replace(records[17], blocks=records[17].blocks[:1])),
    ]
    for before, after in cases:
        with pytest.raises(MalformedParticle):
            layer_links(link, TINY, before, after)
    with pytest.raises(MalformedParticle):
        layer_links(link, make_profile(num_layers=3), records[16], records[17])
    assert len(link.encoding) == LINK_BYTES
