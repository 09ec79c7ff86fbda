"""Three gliads on a LAN that is one loopback device: run in a network namespace of its own.

`unshare -n python -m tests.mdns_world` ends with 0 where the two have met that were started
as anybody starts one, and nobody has met the third, which is not to be found.
"""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.gliad_parts import Gliad, gliads
from tests.network_sockets import network_sockets
from tests.node_parts import until

NOT_HERE = 3
ADDRESS = "192.0.2.1"
ON = "[network]\nenabled = true\n"
SETUP = [
    ["link", "set", "lo", "up", "multicast", "on"],
    ["addr", "add", f"{ADDRESS}/24", "dev", "lo"],
    ["route", "add", "224.0.0.0/4", "dev", "lo"],
]


def is_found(node: Gliad) -> bool:
    network = node.json("status")["network"]
    assert network["mdns"] in ("on", "off"), network
    return bool(network["mdns"] == "on")


def main() -> None:
    with gliads(3, ON) as (one, other, deaf):
        file = deaf.data_dir / "glia.toml"
        file.write_text(f"{file.read_text()}mdns = false\n")
        for node in (one, other, deaf):
            started = node("start")
            assert ("find it on this LAN" in started.stderr) is (node is not deaf), started.stderr
            assert "nothing of what you say is sent" in started.stderr
        until(lambda: bool(one.connected() and other.connected()))
        identities = [each.json("id") for each in (one, other)]
        assert [each["peer_id"] for each in identities] == [*other.connected(), *one.connected()]
        assert f"/ip4/{ADDRESS}/tcp/" in identities[0]["addresses"][0]
        assert deaf.connected() == []
        assert [is_found(node) for node in (one, other, deaf)] == [True, True, False]
        assert 5353 in [port for _, _, port in network_sockets(one.pid)]
        assert 5353 not in [port for _, _, port in network_sockets(deaf.pid)]
        print(f"resident, idle, network and mDNS on: {one.resident_mb:.0f} MB")


if __name__ == "__main__":
    if [name for _, name in socket.if_nameindex()] != ["lo"]:
        sys.exit("not in a network namespace of its own")
    for words in SETUP:
        if subprocess.run(["ip", *words], check=False).returncode:  # noqa: S607
            sys.exit(NOT_HERE)
    main()
