"""A peer's key from its id and back: an id of an Ed25519 key is the key, in base58."""

from __future__ import annotations

import base58

from glia.graph.claims import PeerKey
from p2p.host import PeerId

# an identity multihash (0, 36 bytes) of a protobuf: type 1, Ed25519; 32 bytes of data
_HEAD = bytes.fromhex("002408011220")
_ID_BYTES = len(_HEAD) + 32
_MAX_TEXT = 64


def key_of(peer: PeerId) -> PeerKey | None:
    """The key that the peer's connections prove; None of a peer with a key of another kind."""
    if len(peer) > _MAX_TEXT:
        return None
    try:
        name = base58.b58decode(peer)
    except ValueError:
        return None
    if len(name) != _ID_BYTES or not name.startswith(_HEAD):
        return None
    return PeerKey(name[len(_HEAD) :])


def peer_of(key: PeerKey) -> PeerId:
    """The inverse of key_of."""
    return PeerId(base58.b58encode(_HEAD + key).decode())
