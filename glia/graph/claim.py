"""A claim: a Soul says which Body has its conversations from now on. See spec/18-checkpoint.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from glia.errors import MalformedParticle
from glia.graph.fields import Fields
from glia.graph.ids import ID_BYTES
from glia.graph.journal import ConversationId
from glia.graph.neuron import SIGNATURE_BYTES, NeuronId, is_signed
from glia.graph.soul import Soul, SoulId

MAX_CLAIM_BYTES = 4 * 2**20

_CONTEXT = b"glia 2026 v1 claim\0"
_MAGIC = b"GCLM"
_VERSION = 1
_MAX_CONVERSATIONS = 2**16
_FIXED = struct.Struct("<4sHHQQQ32s32sI")


@dataclass(frozen=True)
class Claim:
    """What is said.

    Attributes:
        epoch: how often the Soul has moved; the larger one counts.
        sequence: of the checkpoint that was restored.
        time_us: microseconds since 1970, UTC.
        holder: the neuron of the Body that has them.
    """

    soul: SoulId
    epoch: int
    sequence: int
    time_us: int
    holder: NeuronId
    conversations: tuple[ConversationId, ...]


def sign_claim(claim: Claim, soul: Soul) -> bytes:
    """The canonical bytes."""
    fixed = _FIXED.pack(
        _MAGIC,
        _VERSION,
        0,
        claim.epoch,
        claim.sequence,
        claim.time_us,
        claim.soul,
        claim.holder,
        len(claim.conversations),
    )
    said = fixed + b"".join(claim.conversations)
    return said + soul.signer.sign(_CONTEXT + said)


def parse_claim(data: bytes) -> Claim:
    """Bytes become a claim; strict, and its Soul signed it. Raises: MalformedParticle."""
    if len(data) > MAX_CLAIM_BYTES:
        raise MalformedParticle(f"a claim of more than {MAX_CLAIM_BYTES:,} bytes")
    fields = Fields(data, "a claim")
    magic, version, zero, epoch, sequence, time_us, soul, holder, num = fields.unpack(_FIXED)
    if (magic, version, zero) != (_MAGIC, _VERSION, 0) or num > _MAX_CONVERSATIONS:
        raise MalformedParticle("not a claim of a known version")
    names = tuple(ConversationId(fields.take(ID_BYTES)) for _ in fields.each(num, ID_BYTES))
    signature = fields.take(SIGNATURE_BYTES)
    fields.end()
    if not is_signed(NeuronId(soul), _CONTEXT + data[:-SIGNATURE_BYTES], signature):
        raise MalformedParticle("a claim that its Soul did not sign")
    return Claim(SoulId(soul), epoch, sequence, time_us, NeuronId(holder), names)
