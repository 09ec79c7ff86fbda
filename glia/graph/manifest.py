"""The `.model` manifest: where a model is, and how its K/V is cut and stored.

See spec/5-manifest.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from glia.errors import ManifestError
from glia.graph.profile import (
    MAX_BLOCK_SIZE,
    KvScheme,
    LayerShape,
    PositionMode,
    Profile,
    is_block_size,
)
from glia.graph.toml import read_toml

NATIVE_DTYPES = ("bfloat16", "float16", "float32")
CANONICAL_DTYPE = "float64"  # the canonical class is what is computed in it
DTYPES = (*NATIVE_DTYPES, CANONICAL_DTYPE)
MAX_PATH_CHARS = 1024
MAX_ADAPTERS = 8

_ROOT_KEYS = ("source", "dtype", "adapters", "kv")
_KV_KEYS = ("block_size", "kv_quant_scheme", "position_anchor_mode")
_SCHEMES = MappingProxyType({scheme.word: scheme for scheme in KvScheme})
_MODES = MappingProxyType({mode.word: mode for mode in PositionMode})
_OF_DTYPE = MappingProxyType(
    {"float32": KvScheme.F32, "float16": KvScheme.F16, "bfloat16": KvScheme.BF16}
)


@dataclass(frozen=True)
class Manifest:
    """What a manifest says. Paths are relative to the manifest's own directory.

    Attributes:
        source: a model directory or a GGUF file.
        dtype: compute dtype, one of DTYPES; float64 is the canonical class.
        adapters: adapters merged into the weights, in order.
        kv_quant_scheme: how K/V is stored; None follows the compute dtype, which is then not
            float64.
    """

    source: str
    dtype: str = "bfloat16"
    adapters: tuple[str, ...] = ()
    block_size: int = 16
    kv_quant_scheme: KvScheme | None = None
    position_anchor_mode: PositionMode = PositionMode.RELATIVE


def parse_manifest(text: str | bytes, file: str) -> Manifest:
    """A manifest from its TOML.

    Args:
        file: what to call it in errors.
    Raises: ManifestError naming file, line and key.
    """
    root = read_toml(text, file, ManifestError, _ROOT_KEYS)
    kv = root.table("kv", _KV_KEYS)
    scheme = None
    if "kv_quant_scheme" in kv:
        scheme = _SCHEMES[kv.text("kv_quant_scheme", None, _SCHEMES)]
    manifest = Manifest(
        source=root.text("source", None),
        dtype=root.text("dtype", "bfloat16", DTYPES),
        adapters=root.texts("adapters", MAX_ADAPTERS),
        block_size=kv.integer("block_size", 16, 16, MAX_BLOCK_SIZE),
        kv_quant_scheme=scheme,
        position_anchor_mode=_MODES[kv.text("position_anchor_mode", "relative", _MODES)],
    )
    fault = _fault(manifest)
    if fault is not None:
        raise root.error(*fault)
    return manifest


def format_manifest(manifest: Manifest) -> str:
    """The TOML of a manifest; parse_manifest gives it back.

    Raises: ManifestError for a value outside the format.
    """
    fault = _fault(manifest)
    if fault is not None:
        key, message = fault
        raise ManifestError(message, key=key)
    lines = [f"source = {_quote(manifest.source)}", f"dtype = {_quote(manifest.dtype)}"]
    if manifest.adapters:
        lines.append(f"adapters = [{', '.join(map(_quote, manifest.adapters))}]")
    lines += ["", "[kv]", f"block_size = {manifest.block_size}"]
    if manifest.kv_quant_scheme is not None:
        lines.append(f"kv_quant_scheme = {_quote(manifest.kv_quant_scheme.word)}")
    lines.append(f"position_anchor_mode = {_quote(manifest.position_anchor_mode.word)}")
    return "\n".join(lines) + "\n"


def profile_of(
    manifest: Manifest, shapes: Sequence[LayerShape], dtype_override: str | None = None
) -> Profile:
    """The profile of a model with these layer shapes under this manifest.

    Args:
        dtype_override: compute dtype instead of the manifest's; storage follows it
            unless the manifest names a scheme, or it is float64.
    Raises: ManifestError for values or shapes outside the limits.
    """
    return Profile(
        block_size=manifest.block_size,
        scheme=scheme_of(manifest, dtype_override),
        mode=manifest.position_anchor_mode,
        layers=tuple(shapes),
    )


def scheme_of(manifest: Manifest, dtype_override: str | None = None) -> KvScheme:
    """How K/V is stored: as the manifest says, else as it is computed; never in float64.

    Raises: ManifestError for an unknown dtype.
    """
    dtype = dtype_override or manifest.dtype
    if dtype == CANONICAL_DTYPE:
        dtype = manifest.dtype
    if manifest.kv_quant_scheme is None and dtype not in _OF_DTYPE:
        allowed = ", ".join(DTYPES)
        raise ManifestError(f"unknown value {dtype[:80]!r}", key="dtype", hint=f"one of: {allowed}")
    return manifest.kv_quant_scheme or _OF_DTYPE[dtype]


def _fault(manifest: Manifest) -> tuple[str, str] | None:
    """Key and complaint of the first value outside the format."""
    for key, paths in (("source", (manifest.source,)), ("adapters", manifest.adapters)):
        for path in paths:
            if not 1 <= len(path) <= MAX_PATH_CHARS or not path.isprintable():
                return key, f"a path is 1 to {MAX_PATH_CHARS} printable characters"
    if len(manifest.adapters) > MAX_ADAPTERS:
        return "adapters", f"has {len(manifest.adapters)} items, {MAX_ADAPTERS} are allowed"
    if manifest.dtype not in DTYPES:
        return "dtype", f"unknown value {manifest.dtype[:80]!r}"
    if manifest.dtype == CANONICAL_DTYPE and manifest.kv_quant_scheme is None:
        return "dtype", "K/V is not stored in float64: say kv.kv_quant_scheme, too"
    if not is_block_size(manifest.block_size):
        return "kv.block_size", f"must be a multiple of 16 from 16 to {MAX_BLOCK_SIZE}"
    return None


def _quote(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's for printable text."""
    return json.dumps(text, ensure_ascii=False)
