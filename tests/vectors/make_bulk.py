"""Writes bulk.json: `python -m tests.vectors.make_bulk`."""

from __future__ import annotations

import json
from pathlib import Path

from p2p.bulk.messages import Agreement, BulkRefused, BulkTicket, OpenBulk
from p2p.bulk.tls import Identity
from p2p.host import PeerId
from p2p.messages import encode
from p2p.testing.names import peer_id_of

_PORT = 41_234


def main() -> None:
    """One negotiation, with certificates made for it."""
    agreed = Agreement(
        protocol="/glia/blocks/1",
        client=PeerId(peer_id_of(0, "client")),
        server=PeerId(peer_id_of(0, "server")),
        client_certificate=Identity.new().certificate,
        server_certificate=Identity.new().certificate,
        ticket=bytes(range(32)),
    )
    ticket = BulkTicket(_PORT, agreed.ticket, agreed.server_certificate)
    vectors = {
        "agreement": {
            name: value.hex() if isinstance(value, bytes) else value
            for name in Agreement.__slots__
            for value in [getattr(agreed, name)]
        },
        "port": _PORT,
        "open": encode(OpenBulk(agreed.protocol, agreed.client_certificate)).hex(),
        "ticket": encode(ticket).hex(),
        "refused": encode(BulkRefused()).hex(),
        "client": agreed.binding("client").hex(),
        "server": agreed.binding("server").hex(),
    }
    path = Path(__file__).with_name("bulk.json")
    path.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
