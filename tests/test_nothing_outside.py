"""Tests, benchmarks and the demo send nothing beyond loopback; nothing shipped names a public host.

That fixtures keep to it is seen on real nodes in integration/test_peers_node.py.
"""

from __future__ import annotations

import ast
import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.network_config import NetworkConfig
from tests.architecture import ROOT, read_sources

OURS = sorted(
    path
    for part in ("tests", "simulations")
    for path in (ROOT / part).rglob("*.py")
    if "node_modules" not in path.parts
)
STARTS = ("start", "daemon.process")  # as words of a command
STAYS = ("OFFLINE", "--offline", "LOOPBACK", "enabled = false", "unshare -n")
REFUSED = ("tests/unit/test_cli.py", "tests/test_nothing_outside.py")  # before anything runs
_IP = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?![\d.])")
_DNS = re.compile(r"/dns\w*/[^/\s]+|dnsaddr=")
DOCUMENTED = ipaddress.ip_network("192.0.2.0/24")  # RFC 5737


def words_of_commands(source: str) -> Iterator[str]:
    """String literals that stand in a list, a tuple, or among a call's arguments."""
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.List | ast.Tuple):
            parts = node.elts
        elif isinstance(node, ast.Call) and _name(node.func) not in ("get", "parametrize"):
            parts = node.args
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ""


def starts_outside(path: Path, source: str) -> bool:
    """Whether it starts a gliad and does not say that it stays here."""
    if str(path.relative_to(ROOT)) in REFUSED:
        return False
    return any(word in STARTS for word in words_of_commands(source)) and not any(
        word in source for word in STAYS
    )


def test_whoever_starts_a_gliad_keeps_it_here() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in OURS}
    assert [str(path) for path in OURS if starts_outside(path, sources[path])] == []
    starting = {path.name for path in OURS if {*words_of_commands(sources[path])} & {*STARTS}}
    assert {"node.py", "__main__.py", "test_start_stop.py", "test_peers_node.py"} <= starting


def test_what_starts_outside_is_found() -> None:
    path = ROOT / "tests" / "integration" / "new.py"
    assert starts_outside(path, 'node("start")')
    assert starts_outside(path, 'run([PYTHON, "-m", "daemon.process"])')
    assert not starts_outside(path, 'node("start", "--listen", LOOPBACK)')


def public_hosts(text: str) -> list[str]:
    """IP addresses that are neither local nor made for documentation, and names of hosts."""
    found = _DNS.findall(text)
    for match in _IP.findall(text):
        try:
            address = ipaddress.ip_address(match)
        except ValueError:
            continue
        is_local = address.is_loopback or address.is_unspecified or address.is_multicast
        if not is_local and address not in DOCUMENTED:
            found.append(match)
    return found


def test_nothing_shipped_names_a_public_host() -> None:
    named = {
        module: public_hosts(node.value)
        for module, source in read_sources().items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if public_hosts(node.value)
    }
    assert named == {}
    assert public_hosts((ROOT / "glia.toml").read_text()) == []


@pytest.mark.parametrize("text", ["/ip4/104.131.131.82/tcp/4001", "/dnsaddr/bootstrap.libp2p.io"])
def test_a_public_host_is_found(text: str) -> None:
    assert public_hosts(text)


def test_no_peer_is_in_a_default() -> None:
    assert NetworkConfig().bootstrap == ()
