"""Sizes and limits of a profile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from glia.errors import ManifestError
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from tests.builders import TINY, WIDE, make_profile


@pytest.mark.spec(3)
def test_payload_bytes_are_computed_from_the_shape() -> None:
    assert WIDE.payload_sizes == (65_536, 65_536)
    layers = make_profile(num_layers=32, kv_heads=8, head_dim=128)
    windows = 128_000 // layers.block_size
    assert windows * len(layers.layers) == 256_000
    assert windows * layers.window_payload_bytes == int(15.625 * 2**30)


@pytest.mark.spec(3)
@pytest.mark.parametrize(("scheme", "itemsize"), [("F32", 4), ("F16", 2), ("BF16", 2)])
@pytest.mark.parametrize("size", [16, 64, 256])
def test_layers_may_differ(scheme: str, itemsize: int, size: int) -> None:
    shapes = (LayerShape(0, 3, 64), LayerShape(2, 1, 80), LayerShape(3, 8, 2))
    profile = Profile(size, KvScheme[scheme], PositionMode.RELATIVE, shapes)
    payloads = tuple(size * heads * dim * 2 * itemsize for heads, dim in ((3, 64), (1, 80), (8, 2)))
    assert profile.payload_sizes == payloads
    assert profile.window_payload_bytes == sum(payloads)
    assert profile.window_particle_bytes == sum(payloads) + 3 * (128 + 4 * size)


@pytest.mark.parametrize("size", range(16, 257, 16))
def test_a_header_keeps_payloads_aligned(size: int) -> None:
    assert make_profile(block_size=size).header_bytes % 64 == 0


@pytest.mark.spec(56)
def test_any_other_value_is_another_profile() -> None:
    others = {
        TINY.profile_id,
        replace(TINY, block_size=64).profile_id,
        replace(TINY, scheme=KvScheme.F32).profile_id,
        replace(TINY, scheme=KvScheme.BF16).profile_id,
        replace(TINY, mode=PositionMode.ABSOLUTE).profile_id,
        replace(TINY, layers=TINY.layers[:1]).profile_id,
        replace(TINY, layers=TINY.layers[1:]).profile_id,
    }
    assert len(others) == 7


@pytest.mark.parametrize("size", [-16, 0, 8, 15, 17, 272, 2**16])
def test_a_block_size_outside_the_format_names_its_key(size: int) -> None:
    with pytest.raises(ManifestError, match="block_size") as caught:
        make_profile(block_size=size)
    assert caught.value.key == "block_size"


@pytest.mark.parametrize(
    "layers",
    [
        (),
        (LayerShape(-1, 1, 1),),
        (LayerShape(1024, 1, 1),),
        (LayerShape(1, 1, 1), LayerShape(1, 1, 1)),
        (LayerShape(1, 1, 1), LayerShape(0, 1, 1)),
        (LayerShape(0, 0, 1),),
        (LayerShape(0, 1, 0),),
        (LayerShape(0, 1025, 1),),
        (LayerShape(0, 1, 1025),),
        (LayerShape(0, 512, 1024),),
        tuple(LayerShape(n, 1, 1) for n in range(1025)),
    ],
)
def test_layers_outside_the_format_are_refused(layers: tuple[LayerShape, ...]) -> None:
    with pytest.raises(ManifestError):
        replace(TINY, layers=layers)


def test_the_largest_profile_is_in_the_format() -> None:
    assert make_profile(num_layers=1024, kv_heads=1024, head_dim=256, block_size=16).profile_id
