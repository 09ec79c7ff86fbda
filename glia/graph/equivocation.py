"""Two canonical windows of one neuron that cannot both be: the proof, for anybody to verify.

A canonical window follows from the model, the profile, what stands before it and its tokens. Who
signed two of them with other bytes computed one of them otherwise than it says. See
spec/21-equivocation.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from glia.errors import MalformedParticle
from glia.graph.chain import follows
from glia.graph.ids import digest, short
from glia.graph.link import LINK_BYTES, MAX_LINK_WINDOWS, Link, LinkKind, parse_link
from glia.graph.neuron import NeuronId
from glia.graph.numerics import CANONICAL
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord, parse_window

MAX_EVIDENCE_BYTES = 16 * 1024 * 1024
_HEAD = struct.Struct("<4sHH")
_COUNT = struct.Struct("<H")
_LENGTH = struct.Struct("<I")
_MAGIC = b"GEQV"
_VERSION = 1


@dataclass(frozen=True)
class Statement:
    """A neuron's word for a window.

    Attributes:
        link: that attests it.
        records: from the window to the link's tip.
    """

    link: Link
    records: tuple[WindowRecord, ...]

    @property
    def window(self) -> WindowRecord:
        """The one that it is about."""
        return self.records[0]

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes."""
        parts = [self.link.encoding, _COUNT.pack(len(self.records))]
        for record in self.records:
            parts += [_LENGTH.pack(len(record.encoding)), record.encoding]
        return b"".join(parts)


@dataclass(frozen=True)
class Equivocation:
    """Two of one neuron's that contradict each other; `one` is of the smaller name."""

    one: Statement
    other: Statement

    @property
    def signer(self) -> NeuronId:
        """Whose they are."""
        return self.one.link.signer

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes: head, then both."""
        return _HEAD.pack(_MAGIC, _VERSION, 0) + self.one.encoding + self.other.encoding


def promise_key(signer: NeuronId, window: WindowRecord) -> bytes:
    """32 bytes: of what a neuron can say one window only. Two of one key contradict each other."""
    named = (signer, window.model_id, window.profile_id, window.prev, pack_tokens(window.tokens))
    return digest(b"".join(named))


def statement(link: Link, span: Sequence[WindowRecord], window: WindowRecord) -> Statement:
    """A link's word for one of its windows. Args: span: all that it attests, in order."""
    return Statement(link, tuple(span[span.index(window) :]))


def equivocation(one: Statement, other: Statement) -> Equivocation:
    """The proof. Raises: MalformedParticle where they do not contradict each other."""
    first, second = sorted((one, other), key=lambda each: each.window.window_id)
    found = Equivocation(first, second)
    if why := _why_not(found):
        raise MalformedParticle(f"no equivocation: {why}")
    return found


def parse_equivocation(data: bytes) -> Equivocation:
    """Bytes become a proof: signed, whole, and a contradiction; strict: re-encoding gives the
    input.

    Raises: MalformedParticle.
    """
    if not _HEAD.size <= len(data) <= MAX_EVIDENCE_BYTES:
        raise MalformedParticle(f"an equivocation cannot be {len(data)} bytes")
    if _HEAD.unpack_from(data) != (_MAGIC, _VERSION, 0):
        raise MalformedParticle("not an equivocation of a known version")
    one, at = _parse_statement(data, _HEAD.size)
    other, at = _parse_statement(data, at)
    if at != len(data):
        raise MalformedParticle("an equivocation with bytes behind it")
    found = Equivocation(one, other)
    if why := _why_not(found):
        raise MalformedParticle(f"no equivocation: {why}")
    return found


def _parse_statement(data: bytes, at: int) -> tuple[Statement, int]:
    link = parse_link(_part(data, at, LINK_BYTES))
    at += LINK_BYTES
    (num,) = _COUNT.unpack(_part(data, at, _COUNT.size))
    at += _COUNT.size
    if not 1 <= num <= MAX_LINK_WINDOWS:
        raise MalformedParticle(f"a statement of {num} records")
    records: list[WindowRecord] = []
    for _ in range(num):
        (length,) = _LENGTH.unpack(_part(data, at, _LENGTH.size))
        at += _LENGTH.size
        records.append(parse_window(_part(data, at, length)))
        at += length
    return Statement(link, tuple(records)), at


def _part(data: bytes, at: int, length: int) -> bytes:
    part = data[at : at + length]
    if len(part) != length:
        raise MalformedParticle("an equivocation that is cut short")
    return part


def _why_not(found: Equivocation) -> str:
    """What is missing for a proof; "" where nothing is."""
    for each in (found.one, found.other):
        if why := _why_not_said(each):
            return why
    one, other = found.one.window, found.other.window
    if found.one.link.signer != found.other.link.signer:
        return "two neurons"
    if promise_key(found.signer, one) != promise_key(found.signer, other):
        return "windows of other tokens, or after another one"
    if one.window_id >= other.window_id:
        return "the same window, or not in order"
    return ""


def _why_not_said(said: Statement) -> str:
    claim, records = said.link.claim, said.records
    index = claim.num_windows - len(records)
    first, last = records[0], records[-1]
    if claim.kind is not LinkKind.NEXT_BLOCK or index < claim.num_before:
        return "the link does not attest the window"
    if last.window_id != claim.tip or not all(
        after.prev == before.window_id and follows(before, after)
        for before, after in pairwise(records)
    ):
        return "the records do not lead to the link's tip"
    if index == claim.num_before and first.prev != claim.base:
        return f"the window does not follow the link's base {short(claim.base)}"
    if (first.model_id, first.profile_id) != (claim.model_id, claim.profile_id):
        return "of another model or profile than the link"
    if first.position_start != index * len(first.tokens):
        return "the window is not where the link puts it"
    if first.numerics_class != CANONICAL:
        return "the window is not of class canonical"
    return ""
