"""A second reader of checkpoints, from glia/spec/18-checkpoint.md alone.

Imports nothing of glia; HPKE is pyhpke's, not the one that gliad uses.
"""

import struct

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey
from pyhpke.exceptions import OpenError

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)


def derive(context, secret):
    return blake3(secret, derive_key_context=context).digest()


def name_of(secret):
    key = Ed25519PrivateKey.from_private_bytes(derive("glia 2026 v1 soul sign", secret))
    return key.public_key().public_bytes_raw()


def read(data, secret):
    """What is in a checkpoint: a dict; its conversations are bytes. ValueError for all else."""
    if data[:8] != b"GCKP\1\0\0\0":
        raise ValueError("head")
    (length,) = struct.unpack_from("<Q", data, 40)
    soul = data[8:40]
    if len(data) != 48 + length + 64 or soul != name_of(secret):
        raise ValueError("length, or another soul's")
    check(soul, b"glia 2026 v1 checkpoint\0" + data[:-64], data[-64:])
    box = X25519PrivateKey.from_private_bytes(derive("glia 2026 v1 soul box", secret))
    sealed = data[48:-64]
    info = b"glia 2026 v1 checkpoint\0" + soul
    key = KEMKey.from_pyca_cryptography_key(box)
    opener = SUITE.create_recipient_context(sealed[:32], key, info)
    try:
        return body(opener.open(sealed[32:]))
    except OpenError as error:
        raise ValueError("sealed") from error


def body(data):
    names = ("epoch", "sequence", "time", "lease", "holder")
    *fixed, num_models, num_files = struct.unpack_from("<QQQQ32sII", data)
    said = dict(zip(names, fixed, strict=True))
    at, models, files = 72, [], []
    for _ in range(num_models):
        (length,) = struct.unpack_from("<H", data, at + 32)
        models.append((data[at : at + 32], data[at + 34 : at + 34 + length].decode()))
        at += 34 + length
    for _ in range(num_files):
        (length,) = struct.unpack_from("<I", data, at)
        files.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    if at != len(data):
        raise ValueError("more")
    return {**said, "models": models, "files": files}


def read_claim(data):
    if data[:8] != b"GCLM\1\0\0\0":
        raise ValueError("head")
    epoch, sequence, time, soul, holder, num = struct.unpack_from("<QQQ32s32sI", data, 8)
    if len(data) != 100 + 32 * num + 64:
        raise ValueError("length")
    check(soul, b"glia 2026 v1 claim\0" + data[:-64], data[-64:])
    names = [data[at : at + 32] for at in range(100, len(data) - 64, 32)]
    return epoch, sequence, time, soul, holder, names


def check(key, message, signature):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature as error:
        raise ValueError("signature") from error
