"""The `.model` manifest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from glia.errors import ManifestError
from glia.graph.manifest import Manifest, format_manifest, parse_manifest, profile_of
from glia.graph.profile import KvScheme, LayerShape, PositionMode

SHAPES = (LayerShape(0, 3, 64), LayerShape(1, 3, 64))
FULL = """\
source = "../weights/model.gguf"
dtype = "float16"
adapters = ["one", "two"]

[kv]
block_size = 64
kv_quant_scheme = "f32"
position_anchor_mode = "absolute"
"""


@pytest.mark.spec(56)
def test_defaults() -> None:
    manifest = parse_manifest('source = "model"', "a.model")
    assert manifest == Manifest("model")
    profile = profile_of(manifest, SHAPES)
    assert (profile.block_size, profile.mode) == (16, PositionMode.RELATIVE)
    assert (profile.scheme, profile.layers) == (KvScheme.BF16, SHAPES)


@pytest.mark.spec(56)
def test_everything_can_be_said() -> None:
    manifest = parse_manifest(FULL, "a.model")
    assert manifest == Manifest(
        source="../weights/model.gguf",
        dtype="float16",
        adapters=("one", "two"),
        block_size=64,
        kv_quant_scheme=KvScheme.F32,
        position_anchor_mode=PositionMode.ABSOLUTE,
    )
    assert format_manifest(manifest) == FULL


@pytest.mark.spec(56)
@pytest.mark.parametrize(
    ("dtype", "scheme"),
    [("float32", KvScheme.F32), ("float16", KvScheme.F16), ("bfloat16", KvScheme.BF16)],
)
def test_storage_follows_the_compute_dtype_unless_named(dtype: str, scheme: KvScheme) -> None:
    assert profile_of(Manifest("m", dtype=dtype), SHAPES).scheme is scheme
    assert profile_of(Manifest("m"), SHAPES, dtype).scheme is scheme
    named = Manifest("m", dtype=dtype, kv_quant_scheme=KvScheme.F16)
    assert profile_of(named, SHAPES, "float32").scheme is KvScheme.F16


def test_what_is_computed_in_float64_is_stored_as_it_would_be_else() -> None:
    assert profile_of(Manifest("m"), SHAPES, "float64") == profile_of(Manifest("m"), SHAPES)
    manifest = Manifest("m", dtype="float64", kv_quant_scheme=KvScheme.F16)
    assert parse_manifest(format_manifest(manifest), "a.model") == manifest
    assert profile_of(manifest, SHAPES).scheme is KvScheme.F16
    with pytest.raises(ManifestError, match="not stored in float64"):
        parse_manifest('source = "m"\ndtype = "float64"', "a.model")
    with pytest.raises(ManifestError, match="float64"):  # nobody says how it is stored
        profile_of(Manifest("m", dtype="float64"), SHAPES)


@pytest.mark.spec(56)
@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("packs = []", "packs"),
        ("name = 'x'", "name"),
        ("dtype = 'int8'", "dtype"),
        ("dtype = ''", "dtype"),
        ("adapters = 'one'", "adapters"),
        ("adapters = [1]", "adapters"),
        ("adapters = ['']", "adapters"),
        ("adapters = ['1', '2', '3', '4', '5', '6', '7', '8', '9']", "adapters"),
        ("kv = 1", "kv"),
        ("kv.block_size = 0", "kv.block_size"),
        ("kv.block_size = 24", "kv.block_size"),
        ("kv.block_size = 272", "kv.block_size"),
        ("kv.block_size = 16.0", "kv.block_size"),
        ("kv.block_size = true", "kv.block_size"),
        ("kv.kv_quant_scheme = 'q8'", "kv.kv_quant_scheme"),
        ("kv.kv_quant_scheme = ''", "kv.kv_quant_scheme"),
        ("kv.kv_quant_scheme = 'F16'", "kv.kv_quant_scheme"),
        ("kv.position_anchor_mode = 'rotated'", "kv.position_anchor_mode"),
        ("kv.packs = []", "kv.packs"),
    ],
)
def test_unknown_keys_and_values_name_file_line_and_key(line: str, key: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(f'source = "m"\n\n{line}\n', "dir/a.model")
    assert str(caught.value).startswith(f"dir/a.model:3: {key}: ")
    assert (caught.value.file, caught.value.line, caught.value.key) == ("dir/a.model", 3, key)


@pytest.mark.parametrize("source", ["''", "'" + "x" * 1025 + "'", '"a\\u0000b"', '"a\\nb"', "1"])
def test_a_source_is_a_path(source: str) -> None:
    with pytest.raises(ManifestError, match=r"^a\.model:1: source: "):
        parse_manifest(f"source = {source}", "a.model")


def test_a_source_is_needed() -> None:
    with pytest.raises(ManifestError, match=r"^a\.model: source: missing"):
        parse_manifest("", "a.model")


@pytest.mark.parametrize(
    "path", ["a", "q\"u\\o'te#[x]=1", "дом/模型", "a b", "\\u0041", "'''", '"""']
)
def test_any_path_comes_back(path: str) -> None:
    manifest = Manifest(path, adapters=(path, path))
    assert parse_manifest(format_manifest(manifest), "a.model") == manifest


@pytest.mark.parametrize(
    "change",
    [
        {"source": ""},
        {"source": "a\x00"},
        {"source": "a\udc80"},
        {"source": "a\x7f"},
        {"dtype": "int8"},
        {"block_size": 20},
        {"adapters": ("x",) * 9},
        {"adapters": ("",)},
    ],
)
def test_what_could_not_be_read_is_not_written(change: dict[str, Any]) -> None:
    with pytest.raises(ManifestError):
        format_manifest(replace(Manifest("m"), **change))


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ManifestError, match="dtype") as caught:
        profile_of(Manifest("m"), SHAPES, "int8")
    assert caught.value.hint == "one of: bfloat16, float16, float32, float64"
