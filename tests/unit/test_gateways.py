"""The kernel's tables of routes, as it writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.gateways import gateways

IPV4 = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
NONE = "0" * 32
IPV6 = f"""fd{NONE[2:]} 40 {NONE} 00 {NONE} 00000100 00000001 00000000 00000001     eth0
{NONE} 00 {NONE} 00 fd{NONE[3:]}1 00000400 00000003 00000000 00000003     eth0
"""


def test_next_hops_of_both_tables(tmp_path: Path) -> None:
    (tmp_path / "route").write_text(IPV4)
    (tmp_path / "ipv6_route").write_text(IPV6)
    assert gateways(tmp_path) == {"172.17.0.1", "fd00::1"}


def test_a_kernel_without_ipv6(tmp_path: Path) -> None:
    (tmp_path / "route").write_text(IPV4)
    assert gateways(tmp_path) == {"172.17.0.1"}


def test_no_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="route"):
        gateways(tmp_path)
