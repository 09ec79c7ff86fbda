"""Writes introduction.json: `python -m tests.vectors.make_introduction`."""

from __future__ import annotations

import json
from pathlib import Path

from glia.graph.neuron import Signer
from p2p.host import PeerId
from p2p.introducing import introduction
from p2p.testing.names import peer_id_of

PEER = PeerId(peer_id_of(0, "introduced"))


def example() -> bytes:
    """Of a neuron whose seed is 32 times 01."""
    return introduction(Signer(b"\1" * 32), PEER)


def main() -> None:
    """Two neurons behind one peer, one after the other."""
    said = [example(), introduction(Signer(bytes(range(32))), PEER)]
    vectors = {"peer": PEER, "introductions": [each.hex() for each in said]}
    path = Path(__file__).with_name("introduction.json")
    path.write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
