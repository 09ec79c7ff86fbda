"""Two Bodies of one Soul find out that they are, and nobody else anything (spec/bearing.md).

Both have the Soul's secret. Who asks says a random number; who is asked says another, and a
proof, which is noise to whoever does not have the secret, so one that has no Soul, or
another, says noise in its place. Then who asks proves itself. Both proofs name both peers, as
the handshake of the connection proved them, so they are worth nothing to anybody in between.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hmac import compare_digest

import trio

from glia.errors import PeerLost, PeerRefused, RemoteProtocolError
from glia.graph.soul import SECRET_BYTES, Soul
from p2p.frames import Reader, encode_frame, send_body
from p2p.host import PeerId, Stream

CLAIMS = "/glia/soul/1"
SOUL_FIND = "/glia/soul/find/1"
SOUL_BLOCKS = "/glia/soul/blocks/1"
HANDLER_S = 60.0

_NONCE_BYTES = 32
_PROOF_BYTES = 32
_ANSWER_S = 5.0
_ANSWERS, _ASKS = b"glia 2026 v1 bearing answers\0", b"glia 2026 v1 bearing asks\0"
_MAX_HEARD_BYTES = 32 * 2**20  # as much as a Body keeps of it


async def ask_bearer(stream: Stream, reader: Reader, own: PeerId, soul: Soul) -> None:
    """Begin a stream with a Body of the same Soul, and only with one.

    Args: own: this node's peer id.
    Raises: PeerRefused (it is none), PeerLost.
    """
    mine = secrets.token_bytes(_NONCE_BYTES)
    await send_body(stream, mine)
    said = await _exactly(reader, _NONCE_BYTES + _PROOF_BYTES)
    theirs, proof = said[:_NONCE_BYTES], said[_NONCE_BYTES:]
    answers, asks = proofs(soul, own, stream.peer, mine, theirs)
    if not compare_digest(proof, answers):
        raise PeerRefused(f"peer {stream.peer} is no Body of this Soul")
    await send_body(stream, asks)


async def answer_bearer(stream: Stream, reader: Reader, own: PeerId, soul: Soul | None) -> bool:
    """The other side of it. Returns: whether who asks is a Body of the same Soul.

    Args: soul: None where there is none here; who asks cannot tell.
    Raises: PeerLost.
    """
    proving = soul if soul is not None else Soul(secrets.token_bytes(SECRET_BYTES))
    mine = secrets.token_bytes(_NONCE_BYTES)
    theirs = await _exactly(reader, _NONCE_BYTES)
    answers, asks = proofs(proving, stream.peer, own, theirs, mine)
    await send_body(stream, mine + answers)
    return compare_digest(await _exactly(reader, _PROOF_BYTES), asks)


def proofs(
    soul: Soul, asks: PeerId, answers: PeerId, one: bytes, other: bytes
) -> tuple[bytes, bytes]:
    """Of whoever answers, and of whoever asks. Args: one, other: what they drew, who asks first."""
    both = b"".join((asks.encode(), b"\0", answers.encode(), b"\0", one, other))
    return soul.prove(_ANSWERS + both), soul.prove(_ASKS + both)


async def tell(stream: Stream, claims: Iterable[bytes]) -> None:
    """All claims that are known, then the end. Raises: PeerLost."""
    for claim in claims:
        await send_body(stream, encode_frame(claim))
    await stream.finish()


async def hear(reader: Reader) -> list[bytes]:
    """What the other side tells. Raises: PeerLost, RemoteProtocolError."""
    said: list[bytes] = []
    num_bytes = 0
    while (claim := await reader.frame(_ANSWER_S)) is not None:
        num_bytes += len(claim)
        if num_bytes > _MAX_HEARD_BYTES:
            raise RemoteProtocolError("claims without an end")
        said.append(claim)
    return said


async def _exactly(reader: Reader, num_bytes: int) -> bytes:
    with trio.move_on_after(_ANSWER_S):
        return await reader.exactly(num_bytes)
    raise PeerLost(f"the peer said nothing for {_ANSWER_S:g} s")
