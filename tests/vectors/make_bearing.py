"""Writes bearing.json: `python -m tests.vectors.make_bearing`."""

from __future__ import annotations

import json
from pathlib import Path

from glia.graph.soul import Soul
from p2p.bearing import proofs
from p2p.host import PeerId

CASES = [
    (b"\1" * 32, "12D3KooWA", "12D3KooWB", b"\2" * 32, b"\3" * 32),
    (b"\1" * 32, "12D3KooWB", "12D3KooWA", b"\2" * 32, b"\3" * 32),
    (bytes(range(32)), "12D3KooWA", "12D3KooWB", bytes(32), b"\xff" * 32),
]


def example() -> tuple[bytes, bytes]:
    """The first case's, of who answers and of who asks."""
    secret, asks, answers, one, other = CASES[0]
    return proofs(Soul(secret), PeerId(asks), PeerId(answers), one, other)


def main() -> None:
    """Write the file."""
    rows = []
    for secret, asks, answers, one, other in CASES:
        found = proofs(Soul(secret), PeerId(asks), PeerId(answers), one, other)
        drawn = [secret.hex(), asks, answers, one.hex(), other.hex()]
        rows.append([*drawn, *(each.hex() for each in found)])
    path = Path(__file__).with_name("bearing.json")
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
