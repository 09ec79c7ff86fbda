"""Encrypted windows are what 19-encrypted-window.md says: frozen, strict, for any reader."""

from __future__ import annotations

import ast
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glia.errors import HashMismatch, IntegrityError, MalformedParticle
from glia.graph.encrypted import (
    alias_of,
    decrypt_window,
    encrypt_window,
    open_block,
    parse_encrypted,
    parse_record,
)
from glia.graph.group import Epoch
from glia.graph.ids import BlockId, WindowId, digest
from glia.graph.window import parse_window
from tests.vectors import encrypted_reference, make_encrypted
from tests.vectors.make_encrypted import EPOCH, RECORDS, WINDOWS

VECTOR = json.loads(make_encrypted.FILE.read_text())
OTHER = Epoch(2, b"o" * 32)


def test_the_vector_is_what_is_written() -> None:
    assert make_encrypted.build() == VECTOR


def test_the_reader_shares_no_code() -> None:
    tree = ast.parse(Path(encrypted_reference.__file__).read_text())
    names = [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in names if name.split(".")[0] in ("glia", "daemon", "p2p")]


@pytest.mark.parametrize("number", range(2))
def test_both_read_and_open_the_vector(number: int) -> None:
    said: dict[str, Any] = VECTOR["windows"][number]
    data, key = bytes.fromhex(said["encoding"]), EPOCH.key
    ours, theirs = parse_encrypted(data), encrypted_reference.read(data)
    assert ours == parse_record(data) == WINDOWS[number].window
    assert ours.encoding == data
    assert (ours.window_id, ours.prev, ours.alias) == (
        theirs["name"], theirs["prev"], theirs["alias"],
    )  # fmt: skip
    assert (ours.is_first, list(ours.blocks)) == (theirs["is_first"], theirs["blocks"])
    assert ours.is_first == (number == 0)
    assert ours.prev.hex() == (VECTOR["windows"][0]["name"] if number else VECTOR["after"])
    record = decrypt_window(EPOCH, ours)
    assert record.encoding.hex() == said["record"]
    assert record.encoding == encrypted_reference.open_record(theirs, key)
    assert record == parse_window(bytes.fromhex(said["record"])) == RECORDS[number + 1]
    aliases = [said["window_id"], said["prefix_key"]]
    for name, alias in zip(aliases, [ours.alias.hex(), said["prefix_alias"]], strict=True):
        assert alias_of(EPOCH, bytes.fromhex(name)).hex() == alias
        assert encrypted_reference.alias_of(key, bytes.fromhex(name)).hex() == alias
    sealed = [bytes.fromhex(text) for text in said["particles"]]
    for particle, public, name in zip(sealed, ours.blocks, record.blocks, strict=True):
        assert (digest(particle), len(particle)) == (public, ours.sealed_bytes)
        block = bytes(open_block(EPOCH, particle, name))
        assert block == encrypted_reference.open_block(particle, key, name)
        assert digest(block) == name


def test_nothing_of_it_is_in_the_clear() -> None:
    for window, record in zip(WINDOWS, RECORDS[1:], strict=True):
        data = window.window.encoding + b"".join(window.particles)
        secrets = [record.window_id, record.prev, record.model_id, *record.blocks]
        secrets.append(record.encoding[120 : 120 + 64])  # tokens
        assert not [secret for secret in secrets if bytes(secret) in data]


def test_a_flipped_bit_has_another_name_and_opens_nothing() -> None:
    window = WINDOWS[1].window
    data, rng = window.encoding, random.Random(1)
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << rng.randrange(8)
        with pytest.raises(HashMismatch):
            parse_encrypted(bytes(bad), window.window_id)
        try:
            altered = parse_encrypted(bytes(bad))
        except MalformedParticle:
            continue
        with pytest.raises(IntegrityError):
            decrypt_window(EPOCH, altered)
    for cut in (data[:-1], data + b"\0", data[:100], b""):
        with pytest.raises(MalformedParticle):
            parse_encrypted(cut)


def test_of_another_epoch_nothing_opens() -> None:
    window, record = WINDOWS[0], RECORDS[1]
    with pytest.raises(HashMismatch):
        decrypt_window(OTHER, window.window)
    with pytest.raises(HashMismatch):
        decrypt_window(OTHER, replace(window.window, epoch_id=OTHER.epoch_id))
    for particle, name in zip(window.particles, record.blocks, strict=True):
        with pytest.raises(HashMismatch):
            open_block(OTHER, particle, name)
        with pytest.raises(HashMismatch):
            open_block(EPOCH, particle, BlockId(digest(name)))


def test_no_key_seals_two_texts() -> None:
    """A window sealed again behind another name has the same record, and nothing else of it."""
    record = RECORDS[2]
    blocks = [bytes(100)] * len(record.blocks)
    one, two = (
        encrypt_window(EPOCH, record, blocks, WindowId(bytes([n]) * 32), 100).window for n in (1, 2)
    )
    assert (one.alias, one.blocks) == (two.alias, two.blocks)
    length = len(one.record) - 16
    assert one.record[:length] != two.record[:length]
    assert decrypt_window(EPOCH, one) == decrypt_window(EPOCH, two) == record


def test_a_member_who_seals_what_is_not_so_is_found_out() -> None:
    """The alias, the number of blocks, and what stands behind the record."""
    record = RECORDS[1]
    blocks = [bytes(100)] * len(record.blocks)
    again = encrypt_window(EPOCH, record, blocks, WindowId(bytes(32)), 100)
    assert decrypt_window(EPOCH, again.window) == record  # its blocks are held to it, one by one
    with pytest.raises(HashMismatch):
        open_block(EPOCH, again.particles[0], record.blocks[0])
    fewer = encrypt_window(EPOCH, record, blocks[:1], WindowId(bytes(32)), 100)
    with pytest.raises(MalformedParticle, match="of another window"):
        decrypt_window(EPOCH, fewer.window)
    with pytest.raises(ValueError, match="not an encrypted window"):
        _ = replace(again.window, blocks=()).encoding
