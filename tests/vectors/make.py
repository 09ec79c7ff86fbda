"""Writes the vectors: `python -m tests.vectors.make`. They are frozen: a diff is a new version.

Inputs follow from a label alone: `seed(label, n)` is the first n bytes of BLAKE3's
extended output over the label's ASCII bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blake3 import blake3

from glia.graph.block import encode_header
from glia.graph.chain import prefix_keys
from glia.graph.ids import (
    BlockId,
    ModelId,
    WindowId,
    digest,
    genesis_block,
    genesis_prefix,
    genesis_window,
    next_prefix,
)
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.tokens import pack_tokens, unpack_tokens
from glia.graph.window import WindowRecord

HERE = Path(__file__).parent
Json = dict[str, Any]

_SEED = (
    "seed(LABEL, n) is the first n bytes of BLAKE3's extended output over LABEL in ASCII. "
    "Names, encodings and payloads are hex. "
)


def seed(label: str, num_bytes: int) -> bytes:
    """The first bytes of BLAKE3's extended output over a label."""
    return blake3(label.encode("ascii")).digest(length=num_bytes)


def tokens_of(label: str, num_tokens: int) -> tuple[int, ...]:
    """Tokens that use all 32 bits."""
    return unpack_tokens(seed(label, 4 * num_tokens))


MODEL = ModelId(seed("model", 32))
SMALL = Profile(16, KvScheme.F16, PositionMode.RELATIVE, (LayerShape(0, 1, 4), LayerShape(2, 2, 2)))
SMALL_ABSOLUTE = Profile(16, KvScheme.F16, PositionMode.ABSOLUTE, SMALL.layers)
WIDE = Profile(16, KvScheme.F16, PositionMode.RELATIVE, (LayerShape(0, 8, 128),))
BATCH = Profile(64, KvScheme.BF16, PositionMode.RELATIVE, (LayerShape(1, 1, 8),))
SMOLLM2 = Profile(
    16, KvScheme.F32, PositionMode.RELATIVE, tuple(LayerShape(i, 3, 64) for i in range(30))
)
LIMITS = Profile(256, KvScheme.F32, PositionMode.ABSOLUTE, (LayerShape(1023, 8, 1024),))


def profile_json(profile: Profile) -> Json:
    """A profile as the vectors write it."""
    return {
        "block_size": profile.block_size,
        "scheme": profile.scheme.word,
        "mode": profile.mode.word,
        "layers": [[shape.layer, shape.kv_heads, shape.head_dim] for shape in profile.layers],
    }


def build() -> dict[str, Json]:
    """File name to content."""
    return {
        "ids.json": _ids(),
        "profile.json": _profiles(),
        "prefix.json": _prefixes(),
        "block.json": _blocks(),
        "window.json": _windows(),
        "refusals.json": _refusals(),
    }


def render(content: Json) -> str:
    """The text of a file."""
    return json.dumps(content, indent=1) + "\n"


def _ids() -> Json:
    model, profile = MODEL, SMALL.profile_id
    key = genesis_prefix(model, profile)
    window = tokens_of("tokens 0", 16)
    return {
        "_comment": _SEED
        + "model = seed('model', 32). profile = the first of profile.json. Genesis of a block for "
        "layers 0, 1, 1023. `prefix`: the key after one window of seed('tokens 0', 64).",
        "model": model.hex(),
        "profile": profile.hex(),
        "genesis_block": {str(n): genesis_block(model, profile, n).hex() for n in (0, 1, 1023)},
        "genesis_window": genesis_window(model, profile).hex(),
        "genesis_prefix": key.hex(),
        "prefix": next_prefix(key, pack_tokens(window)).hex(),
        "digest_of_nothing": digest(b"").hex(),
        "digest_of_seed_model": digest(MODEL).hex(),
    }


def _profiles() -> Json:
    return {
        "_comment": "Each case: the fields, the canonical bytes, their derived name, the bytes of "
        "a header and of each layer's payload.",
        "cases": [
            profile_json(profile)
            | {
                "encoding": profile.encode().hex(),
                "profile_id": profile.profile_id.hex(),
                "header_bytes": profile.header_bytes,
                "payload_bytes": list(profile.payload_sizes),
            }
            for profile in (SMALL, SMALL_ABSOLUTE, WIDE, BATCH, SMOLLM2, LIMITS)
        ],
    }


def _prefixes() -> Json:
    cases = []
    for profile, num_tokens in ((SMALL, 0), (SMALL, 15), (SMALL, 16), (SMALL, 50), (BATCH, 130)):
        tokens = tokens_of("prompt", num_tokens)
        keys = prefix_keys(MODEL, profile, tokens)
        cases.append(
            {
                "profile": profile_json(profile),
                "tokens": list(tokens),
                "keys": [key.hex() for key in keys],
            }
        )
    return {
        "_comment": _SEED + "model = seed('model', 32). tokens: u32 little-endian from "
        "seed('prompt', 4 n). keys: one a full window, the genesis left out.",
        "model": MODEL.hex(),
        "cases": cases,
    }


def _block(profile: Profile, shape: LayerShape, label: str, anchor: int = 0) -> Json:
    prev = BlockId(seed(f"{label} prev", 32))
    tokens = tokens_of(f"{label} tokens", profile.block_size)
    payload = seed(f"{label} payload", profile.payload_bytes(shape))
    header = encode_header(MODEL, profile, shape, prev, tokens, anchor)
    case: Json = {
        "label": label,
        "profile": profile_json(profile),
        "layer": shape.layer,
        "prev": prev.hex(),
        "tokens": list(tokens),
        "anchor": anchor,
        "payload_bytes": len(payload),
        "header": header.hex(),
        "block_id": digest(header + payload).hex(),
    }
    return case | ({"payload": payload.hex()} if len(payload) <= 1024 else {})


def _blocks() -> Json:
    return {
        "_comment": _SEED
        + "model = seed('model', 32). Of each case: prev = seed('LABEL prev', 32), "
        "tokens from seed('LABEL tokens', 4 block_size), payload = seed('LABEL payload', "
        "payload_bytes), given in full where it is short. block_id = BLAKE3(header || payload).",
        "model": MODEL.hex(),
        "cases": [
            _block(SMALL, SMALL.layers[0], "small"),
            _block(SMALL, SMALL.layers[1], "third layer"),
            _block(SMALL_ABSOLUTE, SMALL.layers[0], "small"),
            _block(SMALL_ABSOLUTE, SMALL.layers[0], "small", anchor=4096),
            _block(SMALL_ABSOLUTE, SMALL.layers[0], "small", anchor=2**48),
            _block(WIDE, WIDE.layers[0], "wide"),
            _block(BATCH, BATCH.layers[0], "batch"),
            _block(SMOLLM2, SMOLLM2.layers[29], "smollm2"),
        ],
    }


def _record(
    profile: Profile, prev: WindowId, index: int, numerics_class: str = "native:vectors"
) -> WindowRecord:
    return WindowRecord(
        model_id=MODEL,
        profile_id=profile.profile_id,
        numerics_class=numerics_class,
        prev=prev,
        position_start=index * profile.block_size,
        tokens=tokens_of(f"window {index} tokens", profile.block_size),
        blocks=tuple(
            BlockId(seed(f"window {index} block {shape.layer}", 32)) for shape in profile.layers
        ),
    )


def _windows() -> Json:
    genesis = genesis_window(MODEL, SMALL.profile_id)
    first = _record(SMALL, genesis, 0)
    second = _record(SMALL, first.window_id, 1)
    batch = _record(BATCH, genesis_window(MODEL, BATCH.profile_id), 0, "canonical")
    far = _record(SMALL, WindowId(seed("far prev", 32)), 2**44, "x" * 256)
    return {
        "_comment": _SEED
        + "model = seed('model', 32). With i = position / block_size: tokens from "
        "seed('window i tokens', 4 block_size), the block of layer n is seed('window i block n', "
        "32). The first case follows its genesis, the second the first.",
        "model": MODEL.hex(),
        "cases": [
            {
                "profile": profile_json(profile),
                "class": record.numerics_class,
                "prev": record.prev.hex(),
                "position": record.position_start,
                "tokens": list(record.tokens),
                "blocks": [block.hex() for block in record.blocks],
                "encoding": record.encoding.hex(),
                "window_id": record.window_id.hex(),
            }
            for profile, record in ((SMALL, first), (SMALL, second), (BATCH, batch), (SMALL, far))
        ],
    }


_BLOCK_PATCHES = (
    ("magic", 0, "474b"), ("magic case", 3, "6b"), ("version", 4, "02"), ("mode", 6, "02"),
    ("mode unknown", 6, "00"), ("scheme", 7, "01"), ("scheme unknown", 7, "ff"),
    ("layer of another shape", 8, "02"), ("layer not there", 8, "01"), ("block_size", 10, "20"),
    ("kv_heads", 12, "02"), ("head_dim", 14, "08"), ("payload length", 16, "01"),
    ("reserved", 20, "01"), ("anchor in relative mode", 24, "10"), ("profile", 64, "00"),
)  # fmt: skip
_WINDOW_PATCHES = (
    ("magic", 0, "00"), ("version", 4, "02"), ("class length", 6, "0f"), ("no class", 6, "0000"),
    ("token count", 8, "11"), ("no tokens", 8, "0000"), ("block count", 10, "01"),
    ("no blocks", 10, "0000"), ("proof length", 12, "01"), ("position not a multiple", 16, "08"),
    ("position too large", 16, "1000000000000100"), ("class is not ASCII", -1, "e9"),
    ("class has a control character", -1, "0a"),
)  # fmt: skip


def _refusals() -> Json:
    return {
        "_comment": "Each must be refused. block, window: the first case of block.json (header and "
        "payload) or window.json with `bytes` written at offset `at` (negative: from the end), "
        "then cut to `length` bytes or filled up to it with zeros. profile: fields out of range.",
        "block": [_patch(*patch) for patch in _BLOCK_PATCHES]
        + [_cut(length) for length in (0, 31, 128, 191, 192, 447, 449)],
        "window": [_patch(*patch) for patch in _WINDOW_PATCHES]
        + [_cut(length) for length in (0, 23, 119, 120, 261, 263)],
        "profile": [
            profile_json(SMALL) | change
            for change in (
                {"block_size": 0},
                {"block_size": 15},
                {"block_size": 24},
                {"block_size": 272},
                {"layers": []},
                {"layers": [[1, 1, 4], [0, 1, 4]]},
                {"layers": [[0, 1, 4], [0, 1, 4]]},
                {"layers": [[1024, 1, 4]]},
                {"layers": [[0, 0, 4]]},
                {"layers": [[0, 1, 0]]},
                {"layers": [[0, 1025, 4]]},
                {"layers": [[0, 1, 1025]]},
                {"layers": [[0, 1024, 1024]]},
            )
        ],
    }


def _patch(why: str, at: int, text: str) -> Json:
    return {"why": why, "at": at, "bytes": text}


def _cut(length: int) -> Json:
    return {"why": f"{length} bytes", "length": length}


def main() -> None:
    """Write every file."""
    for name, content in build().items():
        (HERE / name).write_text(render(content), encoding="ascii")


if __name__ == "__main__":
    main()
