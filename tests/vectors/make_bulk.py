"""Writes bulk.json: `python -m tests.vectors.make_bulk`."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from p2p.bulk.keys import Agreement, derive
from p2p.bulk.messages import BulkRefused, BulkTicket, OpenBulk
from p2p.bulk.records import Sealer
from p2p.host import PeerId
from p2p.messages import encode
from p2p.testing.names import peer_id_of

_PORT = 41_234


def main() -> None:
    """One negotiation, its keys, and the first records of the client."""
    client, server = (X25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
    shares = [each.public_key().public_bytes_raw() for each in (client, server)]
    agreed = Agreement(
        protocol="/glia/blocks/1",
        client=PeerId(peer_id_of(0, "client")),
        server=PeerId(peer_id_of(0, "server")),
        client_share=shares[0],
        server_share=shares[1],
        ticket=bytes(range(32)),
    )
    shared = client.exchange(X25519PublicKey.from_public_bytes(shares[1]))
    keys = derive(shared, agreed)
    sealer = Sealer(keys.of_client)
    plains = [b"", b"hello", bytes(range(256)), b""]
    vectors = {
        "client_secret": (b"\1" * 32).hex(),
        "server_secret": (b"\2" * 32).hex(),
        "agreement": {
            name: value.hex() if isinstance(value, bytes) else value
            for name in Agreement.__slots__
            for value in [getattr(agreed, name)]
        },
        "port": _PORT,
        "open": encode(OpenBulk(agreed.protocol, agreed.client_share)).hex(),
        "ticket": encode(BulkTicket(_PORT, agreed.ticket, agreed.server_share)).hex(),
        "refused": encode(BulkRefused()).hex(),
        "shared": shared.hex(),
        "key_of_client": keys.of_client.hex(),
        "key_of_server": keys.of_server.hex(),
        "shown": keys.shown.hex(),
        "records_of_client": [[each.hex(), bytes(sealer.seal(each)).hex()] for each in plains],
    }
    path = Path(__file__).with_name("bulk.json")
    path.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
