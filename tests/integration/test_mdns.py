"""Two nodes on one LAN meet without a word from anybody; what is no node of ours is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.peer.id import ID

from p2p.host import Address, Found, PeerId
from p2p.libp2p.mdns import found_in
from tests.mdns_world import NOT_HERE

ROOT = Path(__file__).parent.parent.parent


def new_peer() -> PeerId:
    return PeerId(ID.from_pubkey(create_new_key_pair().public_key).to_base58())


def test_two_gliads_on_one_lan_meet_without_a_flag() -> None:
    """In a network namespace: nothing is sent on a real device."""
    try:
        done = subprocess.run(
            ["unshare", "-n", sys.executable, "-m", "tests.mdns_world"],  # noqa: S607
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if done.returncode == NOT_HERE or "unshare failed" in done.stderr:
        pytest.skip("no network namespace can be made here")
    assert done.returncode == 0, done.stderr
    print(done.stdout)


def test_a_service_names_one_peer_and_where_it_is() -> None:
    peer, other = new_peer(), new_peer()
    first = Address(f"/ip4/192.0.2.1/tcp/4001/p2p/{peer}")
    texts: dict[bytes, bytes | None] = {
        b"dnsaddr0": first.encode(),
        b"dnsaddr1": f"/ip4/192.0.2.2/tcp/4001/p2p/{other}".encode(),
        b"dnsaddr2": f"/ip4/192.0.2.3/udp/4001/quic-v1/p2p/{peer}".encode(),
        b"dnsaddr3": b"\xff\xfe",
        b"dnsaddr4": None,
    }
    assert found_in(texts) == Found(peer, (first,))


def test_a_service_that_names_nobody_is_nothing() -> None:
    assert found_in({}) is None
    assert found_in({b"dnsaddr0": b"/ip4/192.0.2.1/tcp/4001", b"x": b"nonsense"}) is None


def test_a_service_names_few_addresses() -> None:
    peer = new_peer()
    texts: dict[bytes, bytes | None] = {
        f"dnsaddr{at}".encode(): f"/ip4/192.0.2.1/tcp/{at + 1}/p2p/{peer}".encode()
        for at in range(100)
    }
    found = found_in(texts)
    assert found is not None
    assert len(found.addresses) == 8
