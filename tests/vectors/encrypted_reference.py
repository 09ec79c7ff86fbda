"""A second reader of encrypted windows, from glia/spec/19-encrypted-window.md and 15-group.md.

No import of glia. Refusals are ValueError.
"""

import struct

from blake3 import blake3
from nacl.bindings import crypto_aead_chacha20poly1305_ietf_decrypt as chacha_open
from nacl.exceptions import CryptoError

from tests.vectors.group_reference import epoch_of, open_sealed


def read(data):
    """What anybody can read."""
    if len(data) < 116:
        raise ValueError("short")
    magic, version, first, num, size, rest = struct.unpack_from("<4sHHIII", data)
    names = [data[at : at + 32] for at in range(116, 116 + 32 * num, 32)]
    if (magic, version) != (b"GENC", 1) or first > 1 or not 1 <= num <= 1024:
        raise ValueError("head")
    if len(data) != 116 + 32 * num + rest or not 4 < rest <= 40960 or size <= 33:
        raise ValueError("lengths")
    return {
        "name": blake3(data).digest(),
        "is_first": first == 1,
        "size": size,
        "epoch_id": data[20:52],
        "prev": data[52:84],
        "alias": data[84:116],
        "blocks": names,
        "clear": data[: 116 + 32 * num],
        "ciphertext": data[116 + 32 * num :],
    }


def open_record(window, epoch_key):
    """The record in it."""
    epoch_id, k_id, k_enc = epoch_of(epoch_key)
    if epoch_id != window["epoch_id"]:
        raise ValueError("epoch")
    key = blake3(b"record" + window["clear"], key=k_enc).digest()
    try:
        plain = chacha_open(window["ciphertext"], window["clear"], bytes(12), key)
    except CryptoError as error:
        raise ValueError("sealed") from error
    length = int.from_bytes(plain[:4], "little")
    record = plain[4 : 4 + length]
    if len(record) != length or plain[4 + length :].strip(b"\0") or len(plain) % 4096:
        raise ValueError("padding")
    if blake3(blake3(record).digest(), key=k_id).digest() != window["alias"]:
        raise ValueError("alias")
    return record


def open_block(particle, epoch_key, name):
    """The block in a sealed particle."""
    if particle[:33] != b"\1" + epoch_of(epoch_key)[0]:
        raise ValueError("head")
    return open_sealed(epoch_key, particle[33:], name)


def alias_of(epoch_key, name):
    return blake3(name, key=epoch_of(epoch_key)[1]).digest()
