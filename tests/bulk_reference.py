"""The cryptography of p2p/spec/bulk.md over again: hmac, a ladder, and GCM one step lower."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_P = 2**255 - 19


def x25519(secret: bytes, u: bytes) -> bytes:
    """RFC 7748, section 5."""
    k = (int.from_bytes(secret, "little") & ~7 & ~(1 << 255)) | 1 << 254
    x1 = int.from_bytes(u, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in range(254, -1, -1):
        swap = k >> bit & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        e = a * a - b * b
        x3, z3 = (d * a + c * b) ** 2 % _P, x1 * (d * a - c * b) ** 2 % _P
        x2, z2 = a * a * b * b % _P, e * (a * a + 121665 * e) % _P
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, _P - 2, _P) % _P).to_bytes(32, "little")


def keys(shared: bytes, fields: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """The client's, the server's, and what is shown. HKDF is RFC 5869's."""
    info = b"glia bulk 3" + b"".join(len(each).to_bytes(4, "big") + each for each in fields)
    secret = hmac.digest(bytes(32), shared, hashlib.sha256)
    one = hmac.digest(secret, info + b"\1", hashlib.sha256)
    two = hmac.digest(secret, one + info + b"\2", hashlib.sha256)
    return one, two, hmac.digest(secret, two + info + b"\3", hashlib.sha256)


def seal(key: bytes, number: int, plain: bytes) -> bytes:
    """A record."""
    length = len(plain).to_bytes(4, "big")
    cipher = Cipher(algorithms.AES(key), modes.GCM(number.to_bytes(12, "big"))).encryptor()
    cipher.authenticate_additional_data(length)
    return length + cipher.update(plain) + cipher.finalize() + cipher.tag


def unseal(key: bytes, number: int, record: bytes) -> bytes:
    """What it holds. Raises: InvalidTag."""
    body, tag = record[4:-16], record[-16:]
    cipher = Cipher(algorithms.AES(key), modes.GCM(number.to_bytes(12, "big"), tag)).decryptor()
    cipher.authenticate_additional_data(record[:4])
    return cipher.update(body) + cipher.finalize()
