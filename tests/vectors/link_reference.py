"""A second reader of links, CIDs and introductions, from their pages alone; no import of glia.

Ed25519 is RFC 8032 in whole numbers: slow, and nobody's library. Refusals are ValueError.
"""

import hashlib
import struct

from blake3 import blake3

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def refuse_unless(condition, why):
    if not condition:
        raise ValueError(why)


# -- RFC 8032 ----------------------------------------------------------------------------


def add(a, b):
    """Points as (x, y), affine: one inversion each, and nothing to get wrong."""
    (x1, y1), (x2, y2) = a, b
    product = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + product, P - 2, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - product, P - 2, P) % P
    return x, y


def times(n, point):
    out = (0, 1)
    for bit in bin(n)[2:]:
        out = add(out, out)
        if bit == "1":
            out = add(out, point)
    return out


def point_of(data):
    y, sign = int.from_bytes(data, "little") % 2**255, data[31] >> 7
    refuse_unless(y < P, "not a point: y")
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT % P
    refuse_unless(x * x % P == square and (x or not sign), "not a point: x")
    return (P - x if x % 2 != sign else x), y


BASE = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def check_signature(key, message, signature):
    a, r = point_of(key), point_of(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    refuse_unless(times(8, a) != (0, 1), "a key of small order")
    refuse_unless(s < L, "s")
    h = hashlib.sha512(signature[:32] + key + message).digest()
    h = int.from_bytes(h, "little") % L
    refuse_unless(times(s, BASE) == add(r, times(h, a)), "signature")


# -- 9-link.md ---------------------------------------------------------------------------

KINDS = {1: "next_block", 2: "splice"}


def read_link(data):
    """Fields of a link that its signer signed."""
    refuse_unless(len(data) == 288 and data[:6] == b"GLNK\x01\x00" and data[7] == 0, "head")
    before, windows, sequence, time = struct.unpack_from("<IIQQ", data, 8)
    names = [data[at : at + 32] for at in range(32, 224, 32)]
    model, profile, base, tip, key, signer = names
    genesis = blake3(model + profile, derive_key_context="glia 2026 v1 genesis window").digest()
    refuse_unless(data[6] in KINDS, "kind")
    refuse_unless(before < windows <= before + 256, "counts")
    refuse_unless((base == genesis) == (before == 0) and base != tip, "base")
    check_signature(signer, b"glia 2026 v1 link\0" + data[:224], data[224:])
    return {
        "kind": KINDS[data[6]], "num_before": before, "num_windows": windows,
        "sequence": sequence, "time": time, "model": model, "profile": profile,
        "base": base, "tip": tip, "key": key, "signer": signer,
    }  # fmt: skip


# -- p2p/spec/introducing.md -------------------------------------------------------------


def read_introduction(data, peer):
    """The neuron that says that it is behind a peer."""
    refuse_unless(len(data) == 104 and data[:8] == b"GLNI\x01\x00\x00\x00", "head")
    message = b"glia 2026 v1 introduction\0" + data[:40] + peer.encode()
    check_signature(data[8:40], message, data[40:])
    return data[8:40]


# -- 10-cid.md ---------------------------------------------------------------------------

ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def cid(name):
    """(36 bytes, text)."""
    data = bytes.fromhex("01551e20") + name
    number = int.from_bytes(data, "big") << 2  # 288 bits, filled up to 58 digits of 5
    digits = [ALPHABET[number >> shift & 31] for shift in range(285, -1, -5)]
    return data, "b" + "".join(digits)
