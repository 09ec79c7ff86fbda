"""Addresses that are counted as one."""

from __future__ import annotations

import pytest

from p2p.crowds import crowd_of


@pytest.mark.parametrize(
    ("ip", "crowd"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_an_address_of_ipv4_or_a_network_of_ipv6(ip: str, crowd: str) -> None:
    assert crowd_of(ip) == crowd
