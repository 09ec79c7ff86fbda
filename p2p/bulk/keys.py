"""The keys of a bulk stream, and what is shown for it, from what was said over libp2p.

libp2p has proved who the other side is, so the shares need no signature; and they are made
for one stream and forgotten, so that what is recorded cannot be read later.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from glia.errors import RemoteProtocolError
from p2p.host import PeerId

KEY_BYTES = 32
_LABEL = b"glia bulk 3"


@dataclass(frozen=True, slots=True)
class Agreement:
    """What both sides know once a ticket was given. Shares: public keys of X25519, raw."""

    protocol: str
    client: PeerId
    server: PeerId
    client_share: bytes
    server_share: bytes
    ticket: bytes

    @property
    def transcript(self) -> bytes:
        """All of it, each part with its length.

        It names both peers: a peer that passes another's share off as its own, to make two
        others talk who each take the other for it, gets them two different keys.
        """
        return _LABEL + b"".join(
            len(field).to_bytes(4, "big") + field
            for field in (
                self.protocol.encode(),
                self.client.encode(),
                self.server.encode(),
                self.client_share,
                self.server_share,
                self.ticket,
            )
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """Of AES-256-GCM, one for each direction.

    Attributes:
        shown: 32 bytes in the clear, by which the server knows which stream a connection is of.
            Neither side can choose them: a server tells its client which port to send them to.
    """

    of_client: bytes
    of_server: bytes
    shown: bytes


class Ephemeral:
    """One side's secret, for one stream.

    Attributes:
        share: its public half, 32 bytes.
    """

    def __init__(self) -> None:
        self._secret = X25519PrivateKey.generate()
        self.share = self._secret.public_key().public_bytes_raw()

    def keys(self, peer_share: bytes, agreement: Agreement) -> Keys:
        """Raises: RemoteProtocolError for a share that makes a secret which is none."""
        try:
            shared = self._secret.exchange(X25519PublicKey.from_public_bytes(peer_share))
        except ValueError as error:
            raise RemoteProtocolError("a share cannot be used") from error
        return derive(shared, agreement)


def derive(shared: bytes, agreement: Agreement) -> Keys:
    """All of the stream's. Args: shared: what X25519 gave, 32 bytes."""
    made = HKDF(SHA256(), 3 * KEY_BYTES, None, agreement.transcript).derive(shared)
    return Keys(made[:KEY_BYTES], made[KEY_BYTES : 2 * KEY_BYTES], made[2 * KEY_BYTES :])
