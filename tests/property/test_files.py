"""Manifests: what is written is read back; any text is a manifest or a ManifestError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glia.errors import ManifestError
from glia.graph.manifest import (
    CANONICAL_DTYPE,
    DTYPES,
    Manifest,
    format_manifest,
    parse_manifest,
)
from glia.graph.profile import KvScheme, PositionMode

paths = st.text(min_size=1, max_size=30).filter(str.isprintable)
manifests = st.builds(
    Manifest,
    source=paths,
    dtype=st.sampled_from(DTYPES),
    adapters=st.lists(paths, max_size=8).map(tuple),
    block_size=st.sampled_from(range(16, 257, 16)),
    kv_quant_scheme=st.none() | st.sampled_from(KvScheme),
    position_anchor_mode=st.sampled_from(PositionMode),
).filter(lambda m: m.dtype != CANONICAL_DTYPE or m.kv_quant_scheme is not None)
pieces = st.sampled_from(
    [
        "source", "dtype", "kv", "block_size", "adapters", " = ", "=", "[", "]", "{", "}", ",", ".",
        '"', "'", '"""', "'''", "\\", "#", "\n", "\r\n", "\t", " ", "16", "1_0", "0x", "true",
        "nan", "1979-05-27", '"m"', "\x00", "é", "\ud800",
    ]
)  # fmt: skip


def file_of(text: str | bytes) -> str | None:
    """Read it; the file that the error names, if there is one."""
    try:
        parse_manifest(text, "a.model")
    except ManifestError as error:
        return error.file
    return "a.model"


@pytest.mark.spec(56)
@given(manifests)
def test_a_manifest_comes_back(manifest: Manifest) -> None:
    assert parse_manifest(format_manifest(manifest), "a.model") == manifest


@pytest.mark.fault("F33")
@given(st.binary(max_size=300) | st.lists(pieces, max_size=40).map("".join))
def test_any_text_is_a_manifest_or_a_manifest_error(text: str | bytes) -> None:
    assert file_of(text) == "a.model"


@pytest.mark.fault("F33")
@given(manifests, st.data())
def test_a_mutated_manifest_is_a_manifest_or_a_manifest_error(
    manifest: Manifest, data: st.DataObject
) -> None:
    text = format_manifest(manifest)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(pieces) + text[at + data.draw(st.integers(0, 3)) :]
    assert file_of(text) == "a.model"
