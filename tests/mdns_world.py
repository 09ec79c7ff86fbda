"""Two nodes on a LAN that is one loopback device: run in a network namespace of its own.

`unshare -n python -m tests.mdns_world` ends with 0 where they have met.
"""

from __future__ import annotations

import secrets
import subprocess
import sys

import trio

from p2p.host import Address, Limits
from p2p.libp2p.network import Network

ADDRESS = "192.0.2.1"
SETUP = [
    ["link", "set", "lo", "up", "multicast", "on"],
    ["addr", "add", f"{ADDRESS}/24", "dev", "lo"],
    ["route", "add", "224.0.0.0/4", "dev", "lo"],
]


def new_network(has_mdns: bool) -> Network:
    return Network(
        secrets.token_bytes(32),
        [Address(f"/ip4/{ADDRESS}/tcp/0")],
        limits=Limits(),
        validate=lambda key, value: False,
        agent="gliad/test",
        mdns=has_mdns,
    )


async def main() -> None:
    async with trio.open_nursery() as nursery:
        one, other, deaf = new_network(True), new_network(True), new_network(False)
        for each in (one, other, deaf):
            await nursery.start(each.run)
        with trio.fail_after(20):
            while not one.host.connections() or not other.host.connections():
                await trio.sleep(0.05)
        assert [each.peer for each in one.host.connections()] == [other.host.peer_id]
        assert not deaf.host.connections()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    for words in SETUP:
        if subprocess.run(["ip", *words], check=False).returncode:  # noqa: S607
            sys.exit(3)
    trio.run(main)
