"""The asking side of /glia/particle/1: one name, one particle (spec/particle.md)."""

from __future__ import annotations

import trio

from glia.errors import HashMismatch, PeerLost, RemoteProtocolError
from glia.graph.cid import cid_bytes
from glia.graph.ids import digest, short
from p2p.frames import PROGRESS_S, Reader, encode_frame, send_body
from p2p.host import Stream
from p2p.messages import MAX_PARTICLE_BYTES

_ANSWER_TIMEOUT_S = 3.0


async def ask_particle(stream: Stream, name: bytes) -> bytes | None:
    """What the peer at the other end has under a name, verified; None where it has nothing.

    Raises: PeerLost, RemoteProtocolError (longer than any), HashMismatch (not the named bytes).
    """
    await send_body(stream, encode_frame(cid_bytes(name)))
    reader = Reader(stream)
    length = await reader.length(_ANSWER_TIMEOUT_S)
    if length is None:
        raise PeerLost("the stream ended before its answer")
    if length > MAX_PARTICLE_BYTES:
        raise RemoteProtocolError(f"{length} bytes where no particle has so many")
    with trio.move_on_after(PROGRESS_S):
        particle = await reader.exactly(length)
        if not particle:
            return None
        if digest(particle) != name:
            raise HashMismatch(f"{short(name)}: a peer sent other bytes")
        return particle
    raise PeerLost(f"the peer did not finish a particle in {PROGRESS_S:g} s")
