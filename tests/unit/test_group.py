"""Groups: names that outsiders cannot compute, ciphertexts that all can check, members' keys."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from glia.errors import HashMismatch, MalformedParticle
from glia.graph.capability import Chain, attenuate, grant
from glia.graph.cbor import decode, encode
from glia.graph.claims import Claims
from glia.graph.cose import parse_sign1, sign1
from glia.graph.grant import Given, parse_grant, sign_grant
from glia.graph.group import (
    Epoch,
    GroupSecret,
    block_bytes,
    domain_block,
    domain_prefix,
    domain_window,
    record_bytes,
    seal,
    sealed_bytes,
    sealed_id,
    unseal,
)
from glia.graph.ids import BlockId, PrefixKey, WindowId, digest, genesis_prefix, next_prefix
from glia.graph.member import Box, Card, parse_card, sign_card, wrap
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.revoked import MAX_HOLDERS, MAX_TOKENS, Revoked, parse_revoked, sign_revoked
from glia.graph.scope import Op
from tests.builders import MODEL, TINY
from tests.group_parts import (
    GROUP,
    ISSUER,
    NOW_S,
    OTHER_ISSUER,
    PEOPLE,
    chain_of,
    forged,
    key,
    keys_of,
    revoked,
    scope,
    token_id,
)
from tests.vectors import group_reference
from tests.vectors.make import SMOLLM2, seed

FULL = bool(os.environ.get("GLIA_FULL"))
SECRET, OTHER_SECRET = GroupSecret(seed("secret", 32)), GroupSecret(seed("other secret", 32))
EPOCH, LATER = Epoch(1, seed("one", 32)), Epoch(2, seed("two", 32))
BOX, OTHER_BOX = Box(seed("a box", 32)), Box(seed("another box", 32))


@pytest.mark.spec(49)
def test_names_of_a_domain_are_the_groups_alone() -> None:
    """Nothing that anybody can compute is among them, and two groups share none."""
    start = genesis_prefix(MODEL, TINY.profile_id)
    tokens = [bytes([number]) * 64 for number in range(4)]
    chains = {}
    for who, first in (
        ("public", start),
        ("group", domain_prefix(start, SECRET)),
        ("other", domain_prefix(start, OTHER_SECRET)),
    ):
        keys = [first]
        for window in tokens:
            keys.append(next_prefix(keys[-1], window))
        chains[who] = set(keys)
    assert not chains["public"] & chains["group"]
    assert not chains["other"] & chains["group"]
    name = seed("a name", 32)
    made = {
        domain_block(BlockId(name), SECRET),
        domain_window(WindowId(name), SECRET),
        domain_prefix(PrefixKey(name), SECRET),
        name,
    }
    assert len(made) == 4


def test_secrets_are_not_shown() -> None:
    keys = keys_of(SECRET, EPOCH, LATER)
    for shown in (repr(keys), str(EPOCH), repr(BOX)):
        for secret in (SECRET, EPOCH.key, LATER.key, seed("a box", 32)):
            assert secret.hex() not in shown
            assert repr(secret) not in shown


def test_all_blocks_have_one_length() -> None:
    """Also of layers whose K and V differ; records have a few."""
    layers = (LayerShape(0, 1, 4), LayerShape(1, 2, 8))
    mixed = Profile(16, KvScheme.F16, PositionMode.RELATIVE, layers)
    assert len(set(mixed.particle_sizes)) == 2
    size = block_bytes(mixed)
    sealed = {len(seal(EPOCH, bytes(each), size)) for each in mixed.particle_sizes}
    assert sealed == {sealed_bytes(size)}
    assert block_bytes(SMOLLM2) == SMOLLM2.particle_sizes[0]
    assert {sealed_bytes(record_bytes(bytes(n))) for n in (0, 1, 900, 4092)} == {4096 + 16}
    assert sealed_bytes(record_bytes(bytes(4093))) == 8192 + 16


@pytest.mark.fault("F30")
@pytest.mark.spec(49)
def test_whoever_has_no_key_verifies_and_opens_nothing() -> None:
    """A holder checks ciphertexts by name; a removed member has the epoch before's key only."""
    num = 1000 if FULL else 100
    opened = verified = 0
    for number in range(num):
        particle = seed(f"particle {number}", 500)
        sealed = seal(LATER, particle, 512)
        assert sealed == seal(LATER, particle, 512)
        name = sealed_id(LATER.epoch_id, sealed)
        verified += sealed_id(LATER.epoch_id, bytes(sealed)) == name
        assert sealed_id(LATER.epoch_id, sealed[:-1] + bytes([sealed[-1] ^ 1])) != name
        assert sealed_id(EPOCH.epoch_id, sealed) != name
        assert particle not in sealed
        assert unseal(LATER, sealed, digest(particle)) == particle
        for outsider in (EPOCH, Epoch(2, bytes(32))):
            try:
                unseal(outsider, sealed, digest(particle))
            except HashMismatch:
                continue
            opened += 1
    print(f"F30 {num} ciphertexts: {verified} verified by name, {opened} opened without the key")
    assert (verified, opened) == (num, 0)


def test_equal_particles_are_one_in_an_epoch_and_apart_in_two() -> None:
    particle = seed("a particle", 100)
    assert seal(EPOCH, particle, 128) == seal(EPOCH, bytearray(particle), 128)
    assert seal(EPOCH, particle, 128) != seal(LATER, particle, 128)
    assert seal(EPOCH, particle, 128) != seal(Epoch(2, EPOCH.key), particle, 129)
    assert EPOCH.lookup_key(bytes(32)) != LATER.lookup_key(bytes(32))


@pytest.mark.parametrize("at", [0, 3, 50, 131, 147])
def test_altered_ciphertexts_are_not_opened(at: int) -> None:
    particle = seed("a particle", 100)
    sealed = bytearray(seal(EPOCH, particle, 128))
    sealed[at] ^= 1
    with pytest.raises(HashMismatch):
        unseal(EPOCH, sealed, digest(particle))
    for other in (sealed[:-1], b"", sealed + b"\0", bytes(15)):
        with pytest.raises(HashMismatch):
            unseal(EPOCH, other, digest(particle))
    with pytest.raises(HashMismatch):
        unseal(EPOCH, seal(EPOCH, particle, 128), digest(b"another"))


def test_a_member_that_seals_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the key, so it can encrypt anything under a name: padding and hash are checked."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    from glia.graph import group

    name = digest(b"what it should be")
    cipher = ChaCha20Poly1305(group._key(EPOCH, name))

    def sealed(plain: bytes) -> bytes:
        return cipher.encrypt(bytes(12), plain, group._head(EPOCH.epoch_id))

    good = b"\x11\0\0\0what it should be"
    assert unseal(EPOCH, sealed(good + bytes(3)), name) == b"what it should be"
    for plain in (good + b"\0\1", b"\xff" * 8, b"\x12\0\0\0what it should be"):
        with pytest.raises(MalformedParticle):
            unseal(EPOCH, sealed(plain), name)
    with pytest.raises(HashMismatch):
        unseal(EPOCH, sealed(b"\x04\0\0\0else"), name)


@pytest.mark.parametrize(("number", "secret"), [(0, bytes(32)), (2**32, bytes(32)), (1, b"short")])
def test_what_is_no_epoch(number: int, secret: bytes) -> None:
    with pytest.raises(ValueError, match="not an epoch"):
        Epoch(number, secret)


def test_a_particle_larger_than_its_padding() -> None:
    with pytest.raises(ValueError, match="cannot be padded"):
        seal(EPOCH, bytes(10), 9)


# -- revocation lists ------------------------------------------------------------------------


def test_lists_follow_each_other() -> None:
    """A lower number is never taken, nor a list that allows an epoch again."""
    first, second = revoked(1), revoked(2, min_epoch=2)
    assert second.follows(first)
    assert not first.follows(second)
    assert not first.follows(first)
    assert not revoked(3).follows(second)
    assert not replace(second, issuer=OTHER_ISSUER.neuron).follows(first)


@pytest.mark.parametrize(
    "change",
    [
        {"min_epoch": 0},
        {"sequence": -1},
        {"time_s": 2**64},
        {"tokens": frozenset(seed(f"t{n}", 16) for n in range(MAX_TOKENS + 1))},
        {"holders": frozenset(seed(f"h{n}", 32) for n in range(MAX_HOLDERS + 1))},
        {"issuer": OTHER_ISSUER.neuron},
    ],
)
def test_lists_out_of_range_are_not_signed(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a revocation list"):
        sign_revoked(ISSUER, replace(revoked(), **change))  # type: ignore[arg-type]


def test_the_largest_list_is_read() -> None:
    full = Revoked(
        ISSUER.neuron,
        1,
        NOW_S,
        1,
        frozenset(seed(f"t{n}", 16) for n in range(MAX_TOKENS)),
        frozenset(map(type(key(0)), (seed(f"h{n}", 32) for n in range(MAX_HOLDERS)))),
    )
    assert parse_revoked(sign_revoked(ISSUER, full), GROUP) == full


def test_a_list_that_another_signed() -> None:
    theirs = Revoked(OTHER_ISSUER.neuron, 9, NOW_S)
    data = sign_revoked(OTHER_ISSUER, theirs)
    for_us = sign1(OTHER_ISSUER, b"glia-revoked-v1\0" + GROUP, parse_sign1(data).payload).encoding
    for altered in (data, for_us, data[:-1] + bytes([data[-1] ^ 1]), data + b"\0", b""):
        with pytest.raises(MalformedParticle):
            parse_revoked(altered, GROUP)
    ours = sign_revoked(ISSUER, revoked())
    for at in range(0, len(ours), 3):
        with pytest.raises(MalformedParticle):
            parse_revoked(ours[:at] + bytes([ours[at] ^ 1]) + ours[at + 1 :], GROUP)


# -- cards and grants ------------------------------------------------------------------------


def card_of(number: int, box: Box = BOX) -> Card:
    return parse_card(sign_card(PEOPLE[number], key(number), box.key, NOW_S))


def given(chain: Chain | None = None) -> Given:
    encoding = sign_revoked(ISSUER, revoked())
    return Given(
        "friends",
        NOW_S,
        chain or chain_of(scope()),
        keys_of(SECRET, EPOCH, LATER),
        revoked(),
        encoding,
        ("/ip4/127.0.0.1/tcp/1/p2p/x",),
    )


@pytest.mark.spec(49)
def test_a_grant_is_for_one_member() -> None:
    data = sign_grant(ISSUER, card_of(0), given())
    assert parse_grant(data, BOX, key(0)) == given()
    assert parse_grant(data, BOX) == given()
    with pytest.raises(MalformedParticle, match="not wrapped for this node"):
        parse_grant(data, OTHER_BOX, key(0))
    with pytest.raises(MalformedParticle, match="another node"):
        parse_grant(data, BOX, key(1))


def test_whoever_relays_is_granted_no_keys() -> None:
    chain = chain_of(scope(ops=Op.FETCH | Op.RELAY))
    said = replace(given(chain), keys=None)
    data = sign_grant(ISSUER, card_of(0), said)
    assert parse_grant(data, BOX, key(0)) == said
    assert parse_grant(data, OTHER_BOX, key(0)).keys is None
    _, claims, keys = group_reference.read_grant(data, bytes(32))
    assert (claims[0][100], keys) == (9, None)
    for wrong in (given(chain), replace(given(), keys=None)):
        with pytest.raises(ValueError, match="has no keys"):
            sign_grant(ISSUER, card_of(0), wrong)
    for holds, wrapped in ((chain, b"x"), (chain_of(scope()), b"")):
        fields = {1: "friends", 2: NOW_S, 3: holds.encoding, 4: wrapped, 5: said.revoked_encoding}
        wrong = sign1(ISSUER, b"glia-grant-v1\0" + GROUP, encode(fields | {6: []})).encoding
        with pytest.raises(MalformedParticle):
            parse_grant(wrong, BOX, key(0))


def test_a_delegate_grants_in_its_own_name() -> None:
    chain = attenuate(chain_of(scope()), PEOPLE[0], key(1), scope(ops=Op.FETCH), NOW_S, token_id(1))
    data = sign_grant(PEOPLE[0], card_of(1), given(chain))
    assert parse_grant(data, BOX, key(1)).chain == chain
    with pytest.raises(ValueError, match="signed by who"):
        sign_grant(ISSUER, card_of(1), given(chain))


def test_any_altered_byte_of_a_grant_or_card() -> None:
    data, card = sign_grant(ISSUER, card_of(0), given()), sign_card(PEOPLE[0], key(0), BOX.key, 1)
    for at in range(0, len(data), 5):
        with pytest.raises(MalformedParticle):
            parse_grant(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], BOX, key(0))
    for at in range(len(card)):
        with pytest.raises(MalformedParticle):
            parse_card(card[:at] + bytes([card[at] ^ 1]) + card[at + 1 :])
    for other in (b"", bytes(60 * 1024 + 1), card):
        with pytest.raises(MalformedParticle):
            parse_grant(other, BOX)
    for other in (b"", bytes(513), data):
        with pytest.raises(MalformedParticle):
            parse_card(other)


def test_a_grant_that_a_thief_of_the_capability_signed() -> None:
    """It has all that a grant needs, but for the key of who may grant."""
    data = sign_grant(ISSUER, card_of(0), given())
    payload = parse_sign1(data).payload
    for signer in (OTHER_ISSUER, PEOPLE[0]):
        stolen = sign1(signer, b"glia-grant-v1\0" + GROUP, payload).encoding
        with pytest.raises(MalformedParticle, match="who may grant"):
            parse_grant(stolen, BOX, key(0))
    fields = decode(payload)
    assert isinstance(fields, dict)
    thief, less = PEOPLE[1], scope(ops=Op.FETCH)
    as_issuer = Claims(thief.neuron, key(0), less, NOW_S, token_id(0))
    as_delegate = Claims(ISSUER.neuron, key(1), scope(), NOW_S, token_id(1))
    for chain in (
        forged((thief, as_issuer)),
        forged((thief, as_delegate), (thief, as_issuer)),  # the first was never signed
    ):
        message = sign1(thief, b"glia-grant-v1\0" + GROUP, encode({**fields, 3: chain}))
        with pytest.raises(MalformedParticle, match="does not hold together"):
            parse_grant(message.encoding, BOX, key(0))


def test_a_grant_by_who_may_not() -> None:
    """Its capability is of another group, or of nobody's."""
    theirs = replace(scope(), group=seed("no group", 32), audience=seed("no group", 32))
    with pytest.raises(ValueError, match="does not begin"):
        grant(ISSUER, key(0), theirs, NOW_S, token_id(0))
    for change in (
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 65},
        {"homes": ("a",) * 9},
        {"homes": ("\x1b[2J",)},
    ):
        with pytest.raises(ValueError, match="not a grant"):
            sign_grant(ISSUER, card_of(0), replace(given(), **change))  # type: ignore[arg-type]


def test_a_card_whose_key_is_none() -> None:
    """A point of small order: whoever names it would have the secret be everybody's."""
    with pytest.raises(MalformedParticle):
        wrap(given().keys, bytes(32), GROUP)
