"""Checkpoints, claims and carried keys are what 18-checkpoint.md says: strict, for any reader."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from dataclasses import replace

import pytest

from glia.errors import BadCheckpoint, BadRequest, MalformedParticle
from glia.graph.checkpoint import (
    MAX_CHECKPOINT_BYTES,
    ModelName,
    open_checkpoint,
    seal_checkpoint,
    soul_of,
)
from glia.graph.claim import MAX_CLAIM_BYTES, parse_claim, sign_claim
from glia.graph.journal import begin_file, upgraded
from glia.graph.soul import Soul, unlock_secret
from tests.vectors import checkpoint_reference, make_checkpoint
from tests.vectors.make_checkpoint import CHECKPOINT, CLAIM, SECRET, SOUL, WORDS
from tests.vectors.make_conversation import FILES

OTHER = Soul(b"\7" * 32)
CONTEXT = b"glia 2026 v1 checkpoint\0"


def vector(name: str) -> bytes:
    return bytes.fromhex(json.loads(make_checkpoint.FILE.read_text())[name])


def signed_again(said: bytes, soul: Soul = SOUL) -> bytes:
    return said + soul.signer.sign(CONTEXT + said)


def sealed(body: bytes, soul: Soul = SOUL) -> bytes:
    """A checkpoint with this in it, rightly encrypted and signed, whatever it says."""
    box = soul.seal(body, CONTEXT)
    return signed_again(struct.pack("<4sHH32sQ", b"GCKP", 1, 0, soul.name, len(box)) + box, soul)


def opened(data: bytes) -> bytes:
    return SOUL.open(data[48:-64], CONTEXT)


BODY = opened(seal_checkpoint(CHECKPOINT, SOUL))


def test_the_vector_is_what_is_written_but_for_what_is_drawn() -> None:
    frozen, now = json.loads(make_checkpoint.FILE.read_text()), make_checkpoint.build()
    assert {**frozen, "checkpoint": ""} == {**now, "checkpoint": ""}
    assert opened(vector("checkpoint")) == opened(bytes.fromhex(now["checkpoint"]))


@pytest.mark.spec(59)
def test_both_read_what_is_in_it() -> None:
    data = vector("checkpoint")
    assert open_checkpoint(data, SOUL) == CHECKPOINT
    said = checkpoint_reference.read(data, SECRET)
    assert said == {
        "epoch": 1,
        "sequence": 7,
        "time": CHECKPOINT.time_us,
        "lease": CHECKPOINT.lease_us,
        "holder": CHECKPOINT.holder,
        "models": [(model.model_id, model.name) for model in CHECKPOINT.models],
        "files": [begin_file(FILES[name])[0] for name in ("talk", "fork")],
    }
    claim = checkpoint_reference.read_claim(vector("claim"))
    assert parse_claim(vector("claim")) == CLAIM
    assert claim == (2, 7, CLAIM.time_us, SOUL.name, CLAIM.holder, list(CLAIM.conversations))
    assert sign_claim(CLAIM, SOUL) == vector("claim")


@pytest.mark.spec(59)
def test_a_wrong_key_or_a_changed_byte_is_one_typed_error() -> None:
    data, rng = vector("checkpoint"), random.Random(1)
    with pytest.raises(BadCheckpoint, match="another Soul"):
        open_checkpoint(data, OTHER)
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 1 << rng.randrange(8)
        with pytest.raises(BadCheckpoint):
            open_checkpoint(bytes(bad), SOUL)
    for length in range(0, len(data), 7):
        with pytest.raises(BadCheckpoint):
            open_checkpoint(data[:length], SOUL)
    with pytest.raises(BadCheckpoint):
        open_checkpoint(data + b"\0", SOUL)


def test_nobody_else_can_make_one_of_what_is_another_souls() -> None:
    """Neither by signing what another encrypted, nor by encrypting to a name that is not theirs."""
    data = vector("checkpoint")
    theirs = data[:8] + OTHER.name + data[40:-64]
    with pytest.raises(BadCheckpoint, match="not encrypted to this Soul"):
        open_checkpoint(signed_again(theirs, OTHER), OTHER)
    with pytest.raises(BadCheckpoint, match="did not sign"):
        open_checkpoint(signed_again(data[:-64], OTHER), SOUL)


def test_what_is_in_it_is_read_strictly() -> None:
    assert open_checkpoint(sealed(BODY), SOUL) == CHECKPOINT
    rng = random.Random(2)
    for _ in range(400):
        bad = bytearray(BODY)
        bad[rng.randrange(64, len(BODY))] ^= 1 << rng.randrange(8)
        try:
            found = open_checkpoint(sealed(bytes(bad)), SOUL)
        except BadCheckpoint:
            continue
        assert opened(seal_checkpoint(found, SOUL)) == bytes(bad)  # a model's id or name
    for body in (BODY[:-1], BODY + b"\0", b"", BODY[:70]):
        with pytest.raises(BadCheckpoint):
            open_checkpoint(sealed(body), SOUL)


def test_conversations_in_it_are_whole_of_this_version_and_each_of_its_name() -> None:
    talk, fork = CHECKPOINT.files
    old = bytearray(talk)
    old[4] = 1
    for files in (
        (talk, talk), (talk[:-1],), (talk + b"\0",), (b"",), (fork[:60],),
        (upgraded(bytes(old)),), (bytes(old),),
    ):  # fmt: skip
        with pytest.raises(BadCheckpoint, match="cannot be read"):
            open_checkpoint(seal_checkpoint(replace(CHECKPOINT, files=files), SOUL), SOUL)
    none = replace(CHECKPOINT, files=(), models=())
    assert open_checkpoint(seal_checkpoint(none, SOUL), SOUL) == none


def test_counts_and_lengths_allocate_nothing_before_they_are_checked() -> None:
    claims = vector("claim")
    bombs = [
        sealed(BODY[:64] + b"\xff" * 4 + BODY[68:]),
        sealed(BODY[:68] + b"\xff" * 4 + BODY[72:]),
        sealed(BODY[:64] + struct.pack("<II", 1024, 2**16) + BODY[72:]),
        signed_again(vector("checkpoint")[:40] + b"\xff" * 8 + vector("checkpoint")[48:-64]),
    ]
    for bomb in bombs:
        tracemalloc.start()
        try:
            with pytest.raises(BadCheckpoint):
                open_checkpoint(bomb, SOUL)
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()
    with pytest.raises(MalformedParticle):
        parse_claim(claims[:96] + b"\xff" * 4 + claims[100:])
    with pytest.raises(MalformedParticle, match="more than"):
        parse_claim(bytes(MAX_CLAIM_BYTES + 1))
    models = tuple(ModelName(CHECKPOINT.models[0].model_id, "m") for _ in range(1025))
    with pytest.raises(BadCheckpoint, match="too much"):
        open_checkpoint(seal_checkpoint(replace(CHECKPOINT, models=models), SOUL), SOUL)


def test_one_that_is_too_large_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(vector("checkpoint"))
    monkeypatch.setattr("glia.graph.checkpoint.MAX_CHECKPOINT_BYTES", size)
    assert soul_of(seal_checkpoint(CHECKPOINT, SOUL)) == SOUL.name
    monkeypatch.setattr("glia.graph.checkpoint.MAX_CHECKPOINT_BYTES", size - 1)
    with pytest.raises(ValueError, match="too large"):
        seal_checkpoint(CHECKPOINT, SOUL)
    with pytest.raises(BadCheckpoint, match="as long"):
        soul_of(vector("checkpoint"))
    assert MAX_CHECKPOINT_BYTES == 256 * 2**20


def test_a_claim_is_its_souls_alone() -> None:
    data, rng = vector("claim"), random.Random(3)
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 1 << rng.randrange(8)
        with pytest.raises(MalformedParticle):
            parse_claim(bytes(bad))
    for changed in (data[:-1], data + b"\0", b"", sign_claim(CLAIM, OTHER)):
        with pytest.raises(MalformedParticle):
            parse_claim(changed)


def test_a_carried_key_opens_with_its_passphrase_alone() -> None:
    locked = vector("locked")
    assert unlock_secret(locked, WORDS) == SECRET
    assert checkpoint_reference.name_of(SECRET) == SOUL.name
    for data, words in (
        (locked, "three small word"), (locked[:-1] + b"\0", WORDS), (locked[:-1], WORDS),
        (b"", WORDS), (SECRET, WORDS),
    ):  # fmt: skip
        with pytest.raises(BadRequest):
            unlock_secret(data, words)
    assert SECRET not in locked
    with pytest.raises(BadRequest):
        Soul(SECRET[:31])
