"""Links: a neuron says that it computed the windows between two names. See spec/9-link.md.

A link attests the windows *after its base*, up to its tip, and nothing before.
`parse_link` is the only way from foreign bytes to a `Link`: what it gives is signed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

from glia.errors import MalformedParticle
from glia.graph.chain import follows
from glia.graph.ids import (
    ModelId,
    PrefixKey,
    ProfileId,
    WindowId,
    digest,
    genesis_window,
    next_prefix,
    short,
)
from glia.graph.neuron import SIGNATURE_BYTES, NeuronId, Signer, is_signed
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord

CONTEXT = b"glia 2026 v1 link\0"
MAX_LINK_WINDOWS = 256  # that one link attests
MAX_FUTURE_S = 120

_BODY = struct.Struct("<4sHBBIIQQ32s32s32s32s32s32s")  # 224 bytes
_MAGIC = b"GLNK"
_VERSION = 1
_MAX_U32, _MAX_U64 = 2**32 - 1, 2**64 - 1

LINK_BYTES = _BODY.size + SIGNATURE_BYTES


class LinkKind(IntEnum):
    """What the windows after the base are to those before."""

    NEXT_BLOCK = 1
    SPLICE = 2


@dataclass(frozen=True)
class Claim:
    """What a link says.

    Attributes:
        base: the window before the first one attested, or genesis.
        tip: the last one attested.
        prefix_key: the tip's.
        num_before: windows of the chain up to the base.
        num_windows: windows of the chain up to the tip.
    """

    kind: LinkKind
    model_id: ModelId
    profile_id: ProfileId
    base: WindowId
    tip: WindowId
    prefix_key: PrefixKey
    num_before: int
    num_windows: int


@dataclass(frozen=True)
class Link:
    """A signed claim.

    Attributes:
        sequence: the signer's count of its links.
        time_s: when it was signed by the signer's clock, seconds since 1970, UTC.
    """

    claim: Claim
    signer: NeuronId
    sequence: int
    time_s: int
    signature: bytes

    @cached_property
    def encoding(self) -> bytes:
        """The canonical bytes, LINK_BYTES."""
        return _body(self.claim, self.signer, self.sequence, self.time_s) + self.signature

    @cached_property
    def link_id(self) -> bytes:
        """BLAKE3-256 of the encoding."""
        return digest(self.encoding)


def sign_link(signer: Signer, claim: Claim, sequence: int, time_s: int) -> Link:
    """A claim in a neuron's name. Raises: ValueError where parse_link would refuse it."""
    if not (_fits(claim) and 0 <= sequence <= _MAX_U64 and 0 <= time_s <= _MAX_U64):
        raise ValueError(f"not a link: {claim}, {sequence}, {time_s}")
    signature = signer.sign(CONTEXT + _body(claim, signer.neuron, sequence, time_s))
    return Link(claim, signer.neuron, sequence, time_s, signature)


def parse_link(data: bytes) -> Link:
    """Bytes become a link; strict: re-encoding gives the input, and its signer signed it.

    Raises: MalformedParticle.
    """
    link = decode_link(data)
    if not is_signed(link.signer, CONTEXT + data[: _BODY.size], link.signature):
        raise MalformedParticle(f"a link that neuron {short(link.signer)} did not sign")
    return link


def decode_link(data: bytes) -> Link:
    """parse_link for bytes that it took before: the signature is not verified again.

    Raises: MalformedParticle.
    """
    if len(data) != LINK_BYTES:
        raise MalformedParticle(f"a link cannot be {len(data)} bytes")
    magic, version, kind, zero, before, num, sequence, time_s, *names = _BODY.unpack_from(data)
    if (magic, version, zero) != (_MAGIC, _VERSION, 0) or kind not in tuple(LinkKind):
        raise MalformedParticle("not a link of a known version and kind")
    model_id, profile_id, base, tip, key, neuron = names
    claim = Claim(
        kind=LinkKind(kind),
        model_id=ModelId(model_id),
        profile_id=ProfileId(profile_id),
        base=WindowId(base),
        tip=WindowId(tip),
        prefix_key=PrefixKey(key),
        num_before=before,
        num_windows=num,
    )
    if not _fits(claim):
        raise MalformedParticle("a link's fields are out of range")
    return Link(claim, NeuronId(neuron), sequence, time_s, data[_BODY.size :])


def accept_link(data: bytes, now_s: float) -> Link:
    """parse_link for what a peer sent: refused, too, where it is signed in the future.

    Args: now_s: our clock, seconds since 1970; a link may be MAX_FUTURE_S ahead of it.
    Raises: MalformedParticle.
    """
    link = parse_link(data)
    if link.time_s > now_s + MAX_FUTURE_S:
        raise MalformedParticle(f"a link from {link.time_s - now_s:.0f} seconds in the future")
    return link


def check_link(claim: Claim, base_key: PrefixKey, records: Sequence[WindowRecord]) -> None:
    """Whether a claim names these windows, and they follow each other as it says.

    Args:
        base_key: what the first window's prefix key is made from: the base's, the genesis one at
            the beginning, and salted where the domain of a group begins with it.
        records: verified records of the windows after the base up to the tip, in order.
    Raises: MalformedParticle; also for a splice, whose windows are of another chain.
    """
    if claim.kind is not LinkKind.NEXT_BLOCK:
        raise MalformedParticle("only next_block links can be held against a chain")
    if len(records) != claim.num_windows - claim.num_before:
        raise MalformedParticle(f"a link's windows are not {len(records)}")
    first, last = records[0], records[-1]
    follow = first.before == claim.base and all(
        after.prev == before.window_id and follows(before, after)
        for before, after in pairwise(records)
    )
    key = base_key
    for record in records:
        key = next_prefix(key, pack_tokens(record.tokens))
    agrees = (
        follow
        and last.window_id == claim.tip
        and first.position_start == claim.num_before * len(first.tokens)
        and (first.model_id, first.profile_id) == (claim.model_id, claim.profile_id)
        and key == claim.prefix_key
    )
    if not agrees:
        raise MalformedParticle(f"a link to window {short(claim.tip)} disagrees with its windows")


def _body(claim: Claim, signer: NeuronId, sequence: int, time_s: int) -> bytes:
    return _BODY.pack(
        _MAGIC,
        _VERSION,
        claim.kind,
        0,
        claim.num_before,
        claim.num_windows,
        sequence,
        time_s,
        claim.model_id,
        claim.profile_id,
        claim.base,
        claim.tip,
        claim.prefix_key,
        signer,
    )


def _fits(claim: Claim) -> bool:
    starts = claim.base == genesis_window(claim.model_id, claim.profile_id)
    return (
        0 <= claim.num_before < claim.num_windows <= _MAX_U32
        and claim.num_windows - claim.num_before <= MAX_LINK_WINDOWS
        and starts == (claim.num_before == 0)
        and claim.tip != claim.base
    )
