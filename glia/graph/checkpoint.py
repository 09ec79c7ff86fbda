"""A checkpoint: a Soul's conversations at one moment, signed by it and encrypted to it.

And a claim: another Body has them now. See spec/18-checkpoint.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glia.errors import BadCheckpoint, MalformedParticle
from glia.graph.conversation import Begin
from glia.graph.fields import Fields, encode_text
from glia.graph.ids import ID_BYTES, ModelId
from glia.graph.journal import MAX_FILE_BYTES, VERSION, Journal, read_journal
from glia.graph.neuron import SIGNATURE_BYTES, NeuronId, is_signed
from glia.graph.soul import SEALED_MORE_BYTES, Soul, SoulId

MAX_CHECKPOINT_BYTES = 256 * 2**20
MAX_CONVERSATIONS = 2**16
MAX_MODELS = 1024
MAX_NAME_BYTES = 1024

_CONTEXT = b"glia 2026 v1 checkpoint\0"
_MAGIC = b"GCKP"
_VERSION = 1
_HEAD = struct.Struct("<4sHH32sQ")  # 48 bytes
_BODY = struct.Struct("<QQQQ32sII")
_LENGTH = struct.Struct("<I")
_OTHER = "gliad soul show says whose this Body is; --key FILE names another key"


Told = Callable[[int, int], None]


def _nobody(_done: int, _total: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model that conversations are of, and what it was called."""

    model_id: ModelId
    name: str


@dataclass(frozen=True)
class Checkpoint:
    """What is in one.

    Attributes:
        epoch: how often the Soul had moved; sequence: counts its checkpoints, across Bodies.
        time_us, lease_us: when it was made, and until when the Body that made it goes on by
            itself (0: for ever); microseconds since 1970, UTC, by its clock.
        holder: the neuron of the Body that made it.
        files: conversations, each as the bytes of its file (8-conversation.md).
    """

    epoch: int
    sequence: int
    time_us: int
    lease_us: int
    holder: NeuronId
    models: tuple[ModelName, ...]
    files: tuple[bytes, ...]


def seal_checkpoint(checkpoint: Checkpoint, soul: Soul) -> bytes:
    """The bytes of a file that this Soul alone can read. Raises: ValueError (too large)."""
    fixed = _BODY.pack(
        checkpoint.epoch,
        checkpoint.sequence,
        checkpoint.time_us,
        checkpoint.lease_us,
        checkpoint.holder,
        len(checkpoint.models),
        len(checkpoint.files),
    )
    models = (model.model_id + encode_text(model.name) for model in checkpoint.models)
    files = (_LENGTH.pack(len(data)) + data for data in checkpoint.files)
    body = b"".join((fixed, *models, *files))
    num_bytes = len(body) + SEALED_MORE_BYTES
    if _HEAD.size + num_bytes + SIGNATURE_BYTES > MAX_CHECKPOINT_BYTES:
        raise ValueError("a checkpoint that is too large")
    said = _HEAD.pack(_MAGIC, _VERSION, 0, soul.name, num_bytes) + soul.seal(body, _CONTEXT)
    return said + soul.signer.sign(_CONTEXT + said)


def soul_of(data: bytes) -> SoulId:
    """Whose checkpoint it says it is. Raises: BadCheckpoint."""
    if len(data) < _HEAD.size:
        raise BadCheckpoint("not a checkpoint")
    magic, version, zero, name, num_bytes = _HEAD.unpack_from(data)
    if (magic, version, zero) != (_MAGIC, _VERSION, 0):
        raise BadCheckpoint("not a checkpoint of a known version")
    if len(data) != _HEAD.size + num_bytes + SIGNATURE_BYTES or len(data) > MAX_CHECKPOINT_BYTES:
        raise BadCheckpoint("a checkpoint that is not as long as it says")
    return SoulId(name)


def open_checkpoint(data: bytes, soul: Soul, told: Told = _nobody) -> Checkpoint:
    """What is in it, every conversation read and found whole.

    Args: told: as in `read_files`.
    Raises: BadCheckpoint (another Soul's, altered, or not a checkpoint).
    """
    if soul_of(data) != soul.name:
        raise BadCheckpoint("a checkpoint of another Soul", hint=_OTHER)
    said, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
    if not is_signed(soul.signer.neuron, _CONTEXT + said, signature):
        raise BadCheckpoint("a checkpoint that its Soul did not sign: it was altered")
    body = soul.open(said[_HEAD.size :], _CONTEXT)
    try:
        checkpoint = _decode(body)
        read_files(checkpoint, told)
    except MalformedParticle as error:
        raise BadCheckpoint(f"a checkpoint that cannot be read: {error.message}") from error
    return checkpoint


def read_files(checkpoint: Checkpoint, told: Told = _nobody) -> list[Journal]:
    """Its conversations. Raises: MalformedParticle (one is not whole, or there twice).

    Args: told: called with how many were read, of how many.
    """
    journals: list[Journal] = []
    for done, data in enumerate(checkpoint.files, 1):
        journals.append(_journal(data))
        told(done, len(checkpoint.files))
    names = {journal.replay.head.begin.name for journal in journals}
    if len(names) < len(journals):
        raise MalformedParticle("two conversations of one name")
    return journals


def _journal(data: bytes) -> Journal:
    journal = read_journal(data)
    if journal.size_bytes != len(data) or journal.version != VERSION:
        raise MalformedParticle("a conversation that is not whole")
    return journal


def _decode(body: bytes) -> Checkpoint:
    """Strict: encoding again gives the input."""
    fields = Fields(body, "a checkpoint")
    epoch, sequence, time_us, lease_us, holder, num_models, num_files = fields.unpack(_BODY)
    if num_models > MAX_MODELS or num_files > MAX_CONVERSATIONS:
        raise MalformedParticle("a checkpoint of too much")
    models = tuple(
        ModelName(ModelId(fields.take(ID_BYTES)), fields.text(MAX_NAME_BYTES))
        for _ in fields.each(num_models, ID_BYTES)
    )
    files = tuple(_file(fields) for _ in fields.each(num_files, _LENGTH.size))
    fields.end()
    return Checkpoint(epoch, sequence, time_us, lease_us, NeuronId(holder), models, files)


def _file(fields: Fields) -> bytes:
    (num_bytes,) = fields.unpack(_LENGTH)
    if num_bytes > MAX_FILE_BYTES:
        raise MalformedParticle("a conversation in a checkpoint is too large")
    return fields.take(num_bytes)


def names_of(begins: Sequence[Begin]) -> tuple[ModelName, ...]:
    """The models of conversations, each once, in order."""
    found = {begin.model_id: ModelName(begin.model_id, begin.model) for begin in begins}
    return tuple(found[model_id] for model_id in sorted(found))
