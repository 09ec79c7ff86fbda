"""A second reader and writer of the formats, from glia/spec alone. Imports nothing of glia.

A profile is a dict with block_size, scheme, mode, and layers as [layer, kv_heads, head_dim].
Refusals are ValueError.
"""

import struct

from blake3 import blake3

SCHEMES = {"f32": (1, 4), "f16": (2, 2), "bf16": (3, 2)}  # word: number, bytes an element
MODES = {"relative": 1, "absolute": 2}


def derive(context, material):
    return blake3(material, derive_key_context="glia 2026 v1 " + context).digest()


def name(particle):
    return blake3(particle).digest()


def tokens_bytes(tokens):
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def refuse_unless(condition, why):
    if not condition:
        raise ValueError(why)


# -- 2-profile.md ------------------------------------------------------------------------


def payload_length(profile, heads, dim):
    return profile["block_size"] * heads * 2 * dim * SCHEMES[profile["scheme"]][1]


def check_profile(profile):
    size, layers = profile["block_size"], profile["layers"]
    refuse_unless(size in range(16, 257, 16), "block_size")
    refuse_unless(1 <= len(layers) <= 1024, "number of layers")
    numbers = [layer for layer, _, _ in layers]
    refuse_unless(numbers == sorted(set(numbers)) and numbers[-1] < 1024, "layer order")
    for _, heads, dim in layers:
        refuse_unless(1 <= heads <= 1024 and 1 <= dim <= 1024, "shape")
        refuse_unless(payload_length(profile, heads, dim) <= 16 << 20, "payload size")


def profile_encoding(profile):
    check_profile(profile)
    out = b"GPRF" + (1).to_bytes(2, "little")
    out += bytes([SCHEMES[profile["scheme"]][0], MODES[profile["mode"]]])
    out += struct.pack("<HH", profile["block_size"], len(profile["layers"]))
    return out + b"".join(struct.pack("<HHH", *layer) for layer in profile["layers"])


def profile_id(profile):
    return derive("profile", profile_encoding(profile))


# -- 1-ids.md ----------------------------------------------------------------------------


def genesis_block(model, profile, layer):
    return derive("genesis block", model + profile + struct.pack("<H", layer))


def genesis_window(model, profile):
    return derive("genesis window", model + profile)


def prefix_keys(model, profile, tokens):
    """Every key, the genesis first."""
    keys = [derive("genesis prefix", model + profile_id(profile))]
    size = profile["block_size"]
    for start in range(0, len(tokens) // size * size, size):
        keys.append(derive("prefix", keys[-1] + tokens_bytes(tokens[start : start + size])))
    return keys


# -- 3-block.md --------------------------------------------------------------------------


def block_header(model, profile, layer, prev, tokens, anchor):
    heads, dim = {entry[0]: entry[1:] for entry in profile["layers"]}[layer]
    out = b"GBLK\x01\x00" + bytes([MODES[profile["mode"]], SCHEMES[profile["scheme"]][0]])
    out += struct.pack("<HHHH", layer, profile["block_size"], heads, dim)
    out += struct.pack("<IIQ", payload_length(profile, heads, dim), 0, anchor)
    return out + model + profile_id(profile) + prev + tokens_bytes(tokens)


def read_block(particle, profile):
    """Fields of a block that fits the profile; the payload is what follows its header."""
    size = profile["block_size"]
    body = 128 + 4 * size
    refuse_unless(len(particle) >= body, "too short for a header")
    (layer,) = struct.unpack_from("<H", particle, 8)
    (anchor,) = struct.unpack_from("<Q", particle, 24)
    shapes = {entry[0]: entry[1:] for entry in profile["layers"]}
    refuse_unless(layer in shapes, "a layer the profile does not have")
    refuse_unless(anchor <= (0 if profile["mode"] == "relative" else 2**48), "anchor")
    fields = {
        "model": particle[32:64],
        "layer": layer,
        "prev": particle[96:128],
        "tokens": list(struct.unpack_from(f"<{size}I", particle, 128)),
        "anchor": anchor,
    }
    refuse_unless(particle[:body] == block_header(profile=profile, **fields), "header")
    refuse_unless(len(particle) - body == payload_length(profile, *shapes[layer]), "length")
    return fields


# -- 4-window.md -------------------------------------------------------------------------


def window_encoding(model, profile_name, numerics_class, prev, position, tokens, blocks):
    label = numerics_class.encode("ascii")
    refuse_unless(1 <= len(label) <= 256 and all(32 <= b <= 126 for b in label), "class")
    refuse_unless(len(tokens) in range(16, 257, 16), "number of tokens")
    refuse_unless(1 <= len(blocks) <= 1024, "number of blocks")
    refuse_unless(position <= 2**48 and position % len(tokens) == 0, "position")
    counts = struct.pack("<HHHI", len(label), len(tokens), len(blocks), 0)
    out = b"GWIN\x01\x00" + counts + position.to_bytes(8, "little")
    return out + model + profile_name + prev + tokens_bytes(tokens) + b"".join(blocks) + label


def read_window(data):
    """Fields of a window record; encoding them again gives the same bytes."""
    refuse_unless(len(data) >= 120, "too short")
    num_class, num_tokens, num_blocks, _, position = struct.unpack_from("<HHHIQ", data, 6)
    ids, tail = 120 + 4 * num_tokens, 120 + 4 * num_tokens + 32 * num_blocks
    refuse_unless(len(data) == tail + num_class, "lengths do not add up")
    fields = {
        "model": data[24:56],
        "profile_name": data[56:88],
        "numerics_class": data[tail:].decode("ascii"),
        "prev": data[88:120],
        "position": position,
        "tokens": list(struct.unpack_from(f"<{num_tokens}I", data, 120)),
        "blocks": [data[at : at + 32] for at in range(ids, tail, 32)],
    }
    refuse_unless(window_encoding(**fields) == data, "not the canonical bytes")
    return fields
