"""What flags make of [network], and which addresses are some."""

from __future__ import annotations

import socket

import pytest

from daemon.joining import limits_for
from daemon.network_config import (
    NetworkConfig,
    NetworkFlags,
    check_free,
    ip_of,
    is_listen_address,
    is_peer_address,
    peer_of,
)
from daemon.settings import as_text
from glia.errors import BadRequest, NetworkError
from tests.unit.test_config import config_of

PEER = "12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo"
FRIEND = f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("/ip4/127.0.0.1/tcp/0", True),
        ("/ip6/::1/tcp/65535", True),
        ("/ip4/127.0.0.1/tcp/65536", False),
        ("/ip4/127.0.0.1/udp/1", False),
        ("/ip4/127.0.0.256/tcp/1", False),
        ("/ip6/127.0.0.1/tcp/1", False),
        ("/dns4/localhost/tcp/1", False),
        (f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}", False),
        ("/ip4/127.0.0.1/tcp/1\n", False),
        ("", False),
    ],
)
def test_where_to_listen(text: str, is_one: bool) -> None:
    assert is_listen_address(text) is is_one


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (FRIEND, True),
        (f"/dns4/example.org/tcp/1/p2p/{PEER}", True),
        (f"/ip6/::1/tcp/1/p2p/{PEER}", True),
        (f"/ip4/192.0.2.1/tcp/0/p2p/{PEER}", False),
        (f"/ip4/example.org/tcp/1/p2p/{PEER}", False),
        ("/ip4/192.0.2.1/tcp/1", False),
        (f"/ip4/192.0.2.1/udp/1/p2p/{PEER}", False),
        (f"/p2p/{PEER}", False),
    ],
)
def test_where_a_peer_is(text: str, is_one: bool) -> None:
    assert is_peer_address(text) is is_one


def test_what_addresses_name() -> None:
    assert (ip_of("/ip6/::1/tcp/1"), peer_of(FRIEND)) == ("::1", PEER)


def test_flags_go_before_the_file() -> None:
    other = FRIEND.replace("4001", "4002")
    config = NetworkConfig(bootstrap=(other,))
    assert NetworkFlags().over(config) == config
    listening = NetworkFlags(listen=("/ip4/127.0.0.1/tcp/0",)).over(config)
    assert (listening.enabled, listening.listen) == (True, ("/ip4/127.0.0.1/tcp/0",))
    joined = NetworkFlags(bootstrap=(FRIEND, other)).over(config)
    assert (joined.enabled, joined.bootstrap) == (True, (other, FRIEND))
    assert joined.listen == config.listen
    assert not NetworkFlags(offline=True).over(listening).enabled


def test_the_network_is_on_unless_it_is_said_otherwise() -> None:
    default = NetworkConfig()
    assert (default.enabled, default.bootstrap, default.finds_neighbours) == (True, (), True)
    assert not NetworkFlags(offline=True).over(default).enabled


@pytest.mark.parametrize(
    ("listen", "is_found"),
    [
        (("/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0", "/ip4/127.3.2.1/tcp/5"), False),
        ((), False),
        (("/ip4/127.0.0.1/tcp/0", "/ip4/192.0.2.1/tcp/0"), True),
        (("/ip6/::/tcp/0",), True),
    ],
)
def test_who_listens_on_loopback_alone_looks_for_nobody(
    listen: tuple[str, ...], is_found: bool
) -> None:
    assert NetworkConfig(listen=listen).finds_neighbours is is_found
    assert not NetworkConfig(listen=listen, mdns=False).finds_neighbours


@pytest.mark.parametrize("kind", ["/ip4/127.0.0.1", "/ip6/::1"])
def test_an_address_that_is_taken_or_not_here_is_refused(kind: str) -> None:
    family = socket.AF_INET if "ip4" in kind else socket.AF_INET6
    with socket.create_server((kind.split("/")[2], 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NetworkError, match=f"{kind}/tcp/{port}: Address already in use"):
            check_free([f"{kind}/tcp/0", f"{kind}/tcp/{port}"])
    check_free([f"{kind}/tcp/{port}"])
    with pytest.raises(NetworkError, match="Cannot assign"):
        check_free(["/ip4/192.0.2.1/tcp/0"])


def test_flags_travel_as_a_command_line() -> None:
    flags = NetworkFlags(False, ("a", "b"), ("c",))
    assert flags.argv() == ["--listen", "a", "--listen", "b", "--bootstrap", "c"]
    assert NetworkFlags(offline=True).argv() == ["--offline"]


@pytest.mark.parametrize(
    "flags",
    [
        NetworkFlags(listen=("here",)),
        NetworkFlags(bootstrap=("there",)),
        NetworkFlags(offline=True, bootstrap=(FRIEND,)),
    ],
)
def test_bad_flags(flags: NetworkFlags) -> None:
    with pytest.raises(BadRequest):
        flags.over(NetworkConfig())


def test_the_secret_of_a_network_is_not_shown(tmp_path) -> None:  # type: ignore[no-untyped-def]
    shown = as_text(config_of(tmp_path, f'[network]\npsk = "{"ab" * 32}"'))
    assert shown["network.psk"] == '"(hidden)"'
    assert "abab" not in str(shown)
    assert as_text(config_of(tmp_path, ""))["network.psk"] == '""'


def test_few_descriptors_are_few_connections(caplog: pytest.LogCaptureFixture) -> None:
    assert limits_for(65536).max_connections == 128
    assert not caplog.records
    few = limits_for(256)
    assert (few.max_connections, few.max_pending) == (32, 32)
    assert "256 descriptors" in caplog.text
    assert limits_for(8).max_connections == 16
