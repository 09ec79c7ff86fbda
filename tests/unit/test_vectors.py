"""glia and the reference reader agree on every vector, and the files are what the command makes."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from glia.errors import HashMismatch, MalformedParticle, ManifestError
from glia.graph import ids
from glia.graph.block import encode_header, parse_block
from glia.graph.chain import prefix_keys
from glia.graph.ids import BlockId, ModelId, ProfileId, WindowId
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord, parse_window
from tests.vectors import make, reference

pytestmark = [pytest.mark.spec(7, 8, 14), pytest.mark.fault("F40")]

Json = dict[str, Any]


def load(name: str) -> Json:
    return json.loads((Path(make.__file__).parent / name).read_text())


def cases(name: str) -> list[Json]:
    return load(name)["cases"]


def profile_from(case: Json) -> Profile:
    layers = tuple(LayerShape(*entry) for entry in case["layers"])
    scheme = {scheme.word: scheme for scheme in KvScheme}[case["scheme"]]
    mode = {mode.word: mode for mode in PositionMode}[case["mode"]]
    return Profile(case["block_size"], scheme, mode, layers)


def payload_of(case: Json) -> bytes:
    payload = make.seed(f"{case['label']} payload", case["payload_bytes"])
    assert case.get("payload", payload.hex()) == payload.hex()
    return payload


MODEL = ModelId(bytes.fromhex(load("ids.json")["model"]))


@pytest.mark.parametrize("name", list(make.build()))
def test_the_files_are_what_the_command_makes(name: str) -> None:
    text = (Path(make.__file__).parent / name).read_text()
    assert text == make.render(make.build()[name])
    assert next(iter(json.loads(text))) == "_comment"


def test_the_reference_shares_no_code() -> None:
    text = Path(reference.__file__).read_text()
    imported = {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert imported == {"struct", "blake3"}
    assert len(text.splitlines()) < 150


def test_ids() -> None:
    known = load("ids.json")
    profile = ProfileId(bytes.fromhex(known["profile"]))
    for layer, name in known["genesis_block"].items():
        assert ids.genesis_block(MODEL, profile, int(layer)).hex() == name
        assert reference.genesis_block(MODEL, profile, int(layer)).hex() == name
    window, key = known["genesis_window"], known["genesis_prefix"]
    assert ids.genesis_window(MODEL, profile).hex() == window
    assert reference.genesis_window(MODEL, profile).hex() == window
    assert ids.genesis_prefix(MODEL, profile).hex() == key
    assert reference.derive("genesis prefix", MODEL + profile).hex() == key
    tokens = make.seed("tokens 0", 64)
    assert ids.next_prefix(ids.PrefixKey(bytes.fromhex(key)), tokens).hex() == known["prefix"]
    assert reference.derive("prefix", bytes.fromhex(key) + tokens).hex() == known["prefix"]
    for particle, name in ((b"", "digest_of_nothing"), (MODEL, "digest_of_seed_model")):
        assert ids.digest(particle).hex() == reference.name(particle).hex() == known[name]


@pytest.mark.parametrize("case", cases("profile.json"))
def test_profiles(case: Json) -> None:
    profile = profile_from(case)
    assert profile.encode().hex() == reference.profile_encoding(case).hex() == case["encoding"]
    assert profile.profile_id.hex() == reference.profile_id(case).hex() == case["profile_id"]
    assert profile.header_bytes == 128 + 4 * case["block_size"] == case["header_bytes"]
    lengths = [reference.payload_length(case, *entry[1:]) for entry in case["layers"]]
    assert list(profile.payload_sizes) == lengths == case["payload_bytes"]


@pytest.mark.parametrize("case", cases("prefix.json"))
def test_prefix_keys(case: Json) -> None:
    keys = prefix_keys(MODEL, profile_from(case["profile"]), case["tokens"])
    again = reference.prefix_keys(MODEL, case["profile"], case["tokens"])[1:]
    assert [key.hex() for key in keys] == [key.hex() for key in again] == case["keys"]


@pytest.mark.parametrize("case", cases("block.json"))
def test_blocks(case: Json) -> None:
    profile, prev = profile_from(case["profile"]), BlockId(bytes.fromhex(case["prev"]))
    layer, tokens, anchor = case["layer"], case["tokens"], case["anchor"]
    (shape,) = (shape for shape in profile.layers if shape.layer == layer)
    header = encode_header(MODEL, profile, shape, prev, tokens, anchor)
    again = reference.block_header(MODEL, case["profile"], layer, prev, tokens, anchor)
    assert header.hex() == again.hex() == case["header"]

    particle = header + payload_of(case)
    block = parse_block(particle, profile, BlockId(bytes.fromhex(case["block_id"])))
    assert (block.model_id, block.profile_id) == (MODEL, profile.profile_id)
    assert (block.shape, block.prev, block.position_anchor) == (shape, prev, anchor)
    assert (list(block.tokens), bytes(block.payload)) == (tokens, payload_of(case))
    assert reference.name(particle).hex() == block.block_id.hex()
    assert reference.read_block(particle, case["profile"]) == {
        "model": MODEL, "layer": layer, "prev": prev, "tokens": tokens, "anchor": anchor,
    }  # fmt: skip


@pytest.mark.parametrize("case", cases("window.json"), ids=lambda case: case["class"][:16])
def test_windows(case: Json) -> None:
    profile = profile_from(case["profile"])
    data = bytes.fromhex(case["encoding"])
    record = parse_window(data, WindowId(bytes.fromhex(case["window_id"])))
    assert record == WindowRecord(
        model_id=MODEL,
        profile_id=profile.profile_id,
        numerics_class=case["class"],
        prev=WindowId(bytes.fromhex(case["prev"])),
        position_start=case["position"],
        tokens=tuple(case["tokens"]),
        blocks=tuple(BlockId(bytes.fromhex(name)) for name in case["blocks"]),
    )
    assert record.encoding == data
    assert record.window_id.hex() == reference.name(data).hex() == case["window_id"]
    fields = reference.read_window(data)
    assert (fields["numerics_class"], fields["position"]) == (case["class"], case["position"])
    assert (fields["tokens"], fields["prev"]) == (case["tokens"], record.prev)
    assert fields["blocks"] == list(record.blocks)


def test_the_window_cases_are_a_chain_from_genesis() -> None:
    first, second, *_ = cases("window.json")
    profile = profile_from(first["profile"]).profile_id
    assert first["prev"] == ids.genesis_window(MODEL, profile).hex()
    assert second["prev"] == first["window_id"]
    assert pack_tokens(second["tokens"]) == make.seed("window 1 tokens", 64)


def changed(data: bytes, case: Json) -> bytes:
    """The bytes of a refusal; they are other bytes."""
    out = bytearray(data)
    if "at" in case:
        patch = bytes.fromhex(case["bytes"])
        at = case["at"] % len(data)
        out[at : at + len(patch)] = patch
    length = case.get("length", len(data))
    made = bytes(out[:length].ljust(length, b"\0"))
    assert made != data
    return made


@pytest.mark.parametrize("case", load("refusals.json")["block"], ids=lambda case: case["why"])
def test_refused_blocks(case: Json) -> None:
    first = cases("block.json")[0]
    good = bytes.fromhex(first["header"]) + payload_of(first)
    bad = changed(good, case)
    profile = profile_from(first["profile"])
    with pytest.raises(MalformedParticle):
        parse_block(bad, profile)
    with pytest.raises(HashMismatch):
        parse_block(bad, profile, BlockId(bytes.fromhex(first["block_id"])))
    with pytest.raises(ValueError, match=r"\w"):
        reference.read_block(bad, first["profile"])


@pytest.mark.parametrize("case", load("refusals.json")["window"], ids=lambda case: case["why"])
def test_refused_windows(case: Json) -> None:
    first = cases("window.json")[0]
    bad = changed(bytes.fromhex(first["encoding"]), case)
    with pytest.raises(MalformedParticle):
        parse_window(bad)
    with pytest.raises(HashMismatch):
        parse_window(bad, WindowId(bytes.fromhex(first["window_id"])))
    with pytest.raises(ValueError, match=r"\w"):
        reference.read_window(bad)


@pytest.mark.parametrize("case", load("refusals.json")["profile"])
def test_refused_profiles(case: Json) -> None:
    with pytest.raises(ManifestError):
        profile_from(case)
    with pytest.raises(ValueError, match=r"\w"):
        reference.profile_encoding(case)
