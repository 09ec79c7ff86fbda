"""A second reader of capabilities and groups, from their pages alone; no import of glia.

CBOR is read as it is written, one byte after the other; Ed25519 is link_reference's, ChaCha20
and HPKE are other libraries' than the one that is shipped with. Refusals are ValueError.
"""

from blake3 import blake3
from nacl.bindings import crypto_aead_chacha20poly1305_ietf_decrypt as chacha_open
from nacl.exceptions import CryptoError
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from tests.vectors.link_reference import check_signature, refuse_unless

# -- CBOR --------------------------------------------------------------------------------


class Bytes:
    """What is left of an encoding."""

    def __init__(self, data):
        self.data = data

    def take(self, length):
        refuse_unless(len(self.data) >= length, "short")
        taken, self.data = self.data[:length], self.data[length:]
        return taken


def read_cbor(data):
    left = Bytes(data)
    value = item(left, 0)
    refuse_unless(not left.data, "more behind it")
    return value


def item(left, depth):
    first = left.take(1)[0]
    kind, number = divmod(first, 32)
    if number > 23:
        width = {24: 1, 25: 2, 26: 4, 27: 8}.get(number, 0)
        refuse_unless(width, "no length")
        number = int.from_bytes(left.take(width), "big")
        refuse_unless(number >= {1: 24, 2: 2**8, 4: 2**16, 8: 2**32}[width], "not the shortest")
    if kind == 0:
        return number
    if kind == 2:
        return left.take(number)
    if kind == 3:
        return left.take(number).decode("utf-8")
    refuse_unless(kind in (4, 5) and depth < 4, "type or depth")
    if kind == 4:
        return [item(left, depth + 1) for _ in range(number)]
    pairs = []
    for _ in range(number):
        refuse_unless(left.data[:1] and left.data[0] < 0x20, "key")
        pairs.append((item(left, depth + 1), item(left, depth + 1)))
    keys = [key for key, _ in pairs]
    refuse_unless(keys == sorted(set(keys)), "keys")
    return dict(pairs)


def head(kind, length):
    """Of the few numbers, bytes and texts that are written here."""
    if length < 24:
        return bytes([kind * 32 + length])
    width, number = (1, 24) if length < 256 else (2, 25) if length < 2**16 else (4, 26)
    return bytes([kind * 32 + number]) + length.to_bytes(width, "big")


# -- 14-capability.md --------------------------------------------------------------------


def derive(context, material):
    return blake3(material, derive_key_context=context).digest()


def open_message(data, context_of, key_of):
    """The payload of a COSE_Sign1 that the key which it names signed."""
    protected, others, payload, signature = read_cbor(data)
    refuse_unless(protected == b"\xa1\x01\x27" and others == {}, "headers")
    fields = read_cbor(payload)
    context = context_of(fields)
    check_message(key_of(fields), context, payload, signature)
    return fields


def check_message(key, context, payload, signature):
    signed = b"\x84\x6aSignature1\x43\xa1\x01\x27" + head(2, len(context)) + context
    check_signature(key, signed + head(2, len(payload)) + payload, signature)


def name(text):
    refuse_unless(len(text) == 64 and set(text) <= set("0123456789abcdef"), "name")
    return bytes.fromhex(text)


def read_chain(data):
    """The claims of each token of a chain that holds together."""
    refuse_unless(len(data) <= 2048, "size")
    tokens = read_cbor(data)
    refuse_unless(1 <= len(tokens) <= 3, "depth")
    read, before = [], None
    for token in tokens:
        claims = open_message(token, lambda f: b"glia-cap-v1\0" + name(f[2]), lambda f: name(f[1]))
        check_claims(claims)
        if before is None:
            refuse_unless(derive("glia 2026 v1 group", name(claims[1])) == name(claims[2]), "root")
            refuse_unless(105 not in claims, "root")
        else:
            refuse_unless(claims[105] == blake3(tokens[len(read) - 1]).digest(), "parent")
            refuse_unless(name(claims[1]) == before[8][3] and before[100] & 4, "may not")
            check_less(claims, before)
        read.append(claims)
        before = claims
    return read


def check_claims(c):
    refuse_unless(set(c) <= {*range(1, 9), *range(100, 106)}, "unknown claim")
    refuse_unless({*range(1, 9), 100, 104} <= set(c), "missing claim")
    name(c[3])
    refuse_unless(set(c[8]) == {3} and len(c[8][3]) == 32 and len(c[7]) == 16, "holder")
    refuse_unless(c[6] <= c[5] < c[4] <= c[6] + 86400, "times")
    refuse_unless(1 <= c[100] <= 15 and 1 <= c[104] < 2**32, "ops, epoch")
    refuse_unless(len(c.get(101, bytes(32))) == 32, "model")
    if 102 in c:
        refuse_unless(1 <= len(c[102]) <= 8 and c[102] == sorted(set(c[102])), "roots")
        refuse_unless(all(len(root) == 32 for root in c[102]), "roots")


def check_less(child, parent):
    refuse_unless(child[2] == parent[2], "group")
    refuse_unless(parent[3] in (parent[2], child[3]), "audience")
    refuse_unless(child[100] | parent[100] == parent[100], "ops")
    refuse_unless(child[104] <= parent[104], "epoch")
    refuse_unless(child[5] >= parent[5] and child[4] <= parent[4], "times")
    refuse_unless(101 not in parent or child.get(101) == parent[101], "model")
    refuse_unless(102 not in parent or set(child.get(102, [0])) <= set(parent[102]), "roots")
    refuse_unless(103 not in parent or child.get(103, 2**64) <= parent[103], "rate")


def read_revoked(data, group):
    fields = open_message(data, lambda f: b"glia-revoked-v1\0" + group, lambda f: f[1])
    refuse_unless(sorted(fields) == [1, 2, 3, 4, 5, 6], "fields")
    refuse_unless(derive("glia 2026 v1 group", fields[1]) == group, "issuer")
    return fields


# -- 15-group.md -------------------------------------------------------------------------


def epoch_of(key):
    """(epoch id, k_id, k_enc)."""
    contexts = ("glia 2026 v1 group epoch", "glia agg lookup v1", "glia agg enc v1")
    return tuple(derive(context, key) for context in contexts)


def check_statement(issuer, secret, number, key, signature):
    """That the issuer began this epoch."""
    said = b"\xa3\x01" + head(0, number) + b"\x02\x58\x20" + epoch_of(key)[0]
    said += b"\x03\x58\x20" + derive("glia 2026 v1 group secret", secret)
    group = derive("glia 2026 v1 group", issuer)
    check_message(issuer, b"glia-epoch-v1\0" + group, said, signature)


def open_sealed(key, sealed, particle_name):
    epoch_id, _, k_enc = epoch_of(key)
    key = blake3(particle_name, key=k_enc).digest()
    try:
        plain = chacha_open(sealed, b"\x01" + epoch_id, bytes(12), key)
    except CryptoError as error:
        raise ValueError("sealed") from error
    length = int.from_bytes(plain[:4], "little")
    particle = plain[4 : 4 + length]
    refuse_unless(len(particle) == length and not plain[4 + length :].strip(b"\0"), "padding")
    refuse_unless(blake3(particle).digest() == particle_name, "name")
    return particle


def sealed_name(epoch_id, sealed):
    return blake3(b"\x01" + epoch_id + sealed).digest()


def read_card(data):
    fields = open_message(data, lambda f: b"glia-card-v1\0", lambda f: f[1])
    refuse_unless(sorted(fields) == [1, 2, 3, 4], "fields")
    return fields


def read_grant(data, seed):
    """Its fields, the chain read, the keys unwrapped, and their statements checked."""
    chain = []

    def group(fields):
        chain.extend(read_chain(fields[3]))
        return name(chain[0][2])

    fields = open_message(
        data, lambda f: b"glia-grant-v1\0" + group(f), lambda f: name(chain[-1][1])
    )
    if chain[-1][100] & 8:
        refuse_unless(fields[4] == b"", "keys")
        return fields, chain, None
    suite = CipherSuite.new(
        KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305
    )
    key = suite.kem.deserialize_private_key(seed)
    info = b"glia-wrap-v2\0" + name(chain[0][2])
    recipient = suite.create_recipient_context(fields[4][:32], key, info=info)
    keys = read_cbor(recipient.open(fields[4][32:]))
    for number, epoch_key, signature in keys[2]:
        check_statement(name(chain[0][1]), keys[1], number, epoch_key, signature)
    return fields, chain, keys
