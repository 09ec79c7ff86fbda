"""Which neuron a peer signs as: it says so on a stream that proves the peer (spec/introducing.md).

A neuron signs that it is behind a peer id, so nobody can claim another's neuron; and who
dials a peer has proved by the handshake that the id is that peer's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from glia.errors import PeerLost, RemoteProtocolError
from glia.graph.neuron import SIGNATURE_BYTES, NeuronId, Signer, is_signed
from p2p.frames import Reader, encode_frame, send_body
from p2p.host import PeerId, Stream

INTRODUCTION = "/glia/neuron/1"
SIZE_BYTES = 104
_HEAD = b"GLNI" + bytes([1, 0, 0, 0])
_CONTEXT = b"glia 2026 v1 introduction\0"
_ANSWER_TIMEOUT_S = 5.0


def introduction(signer: Signer, peer: PeerId) -> bytes:
    """What a node says of itself.

    Args: peer: its own.
    """
    said = _HEAD + signer.neuron
    return said + signer.sign(_message(said, peer))


def neuron_in(said: bytes, peer: PeerId) -> NeuronId:
    """The neuron that is behind a peer, from what that peer said. Raises: RemoteProtocolError."""
    if len(said) != SIZE_BYTES or not said.startswith(_HEAD):
        raise RemoteProtocolError("not an introduction")
    signed, signature = said[:-SIGNATURE_BYTES], said[-SIGNATURE_BYTES:]
    neuron = NeuronId(signed[len(_HEAD) :])
    if not is_signed(neuron, _message(signed, peer), signature):
        raise RemoteProtocolError("an introduction that its neuron did not sign for this peer")
    return neuron


def introducer(signer: Signer, peer: PeerId) -> Callable[[Stream], Awaitable[None]]:
    """The handler of /glia/neuron/1. Args: peer: this node's."""
    frame = encode_frame(introduction(signer, peer))

    async def introduce(stream: Stream) -> None:
        """Raises: PeerLost."""
        await send_body(stream, frame)
        await stream.finish()

    return introduce


async def ask_neuron(stream: Stream) -> NeuronId:
    """Of the peer at the other end. Raises: PeerLost, RemoteProtocolError."""
    said = await Reader(stream).frame(_ANSWER_TIMEOUT_S)
    if said is None:
        raise PeerLost("the stream ended before an introduction")
    return neuron_in(said, stream.peer)


def _message(said: bytes, peer: PeerId) -> bytes:
    return _CONTEXT + said + peer.encode()
