"""The [network] part of glia.toml: its values, what they may be, and what flags make of them."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from glia.errors import BadRequest, NetworkError
from glia.graph.toml import Table
from p2p.accepting import Accept, Policy
from p2p.host import PeerId

MAX_ADDRESSES = 64
LISTEN_HINT = 'write it like "/ip4/127.0.0.1/tcp/4001"; port 0 is any'
PEER_HINT = 'write it like "/ip4/192.0.2.1/tcp/4001/p2p/12D3Koo...", as the other node shows it'

ACCEPT_HINT = (
    'write "lan", "known", "any", "own", or a list of neurons, each as gliad id shows it there'
)
_MAX_NEURONS = 1024

_NEURON = re.compile(r"[0-9A-Fa-f]{64}")
_LISTEN = re.compile(r"/(ip4|ip6)/([0-9A-Fa-f.:]{2,45})/tcp/(\d{1,5})")
_PEER = re.compile(r"/(ip4|ip6|dns|dns4|dns6)/([0-9A-Za-z.:-]{1,253})/tcp/(\d{1,5})/p2p/\w{46,64}")
_PSK = re.compile(r"(?:[0-9A-Fa-f]{64})?")


@dataclass(frozen=True)
class NetworkConfig:
    """Other nodes.

    Attributes:
        listen: multiaddrs of IP and TCP.
        bootstrap: peers to connect to, multiaddrs with /p2p/PEER.
        mdns: find others on the LAN, and be found; see `finds_neighbours`.
        psk: 64 hex digits that all peers must have; "" where none.
        announce: "boundaries": the DHT and the models' topics are told of what is published;
            "off": nobody is.
        announce_hold_s: before that.
        replicas: other peers that are to have what is published; of what fewer have, L2 keeps
            its own copy for longer.
        upload_bytes: a second, at most; 0: no limit.
        accept: whose links attest: a policy's word, or the neurons that do beside our own.
        exact: "required" uses no K/V of other numerics classes, unless a request says it.
    """

    enabled: bool = True
    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/0",)
    bootstrap: tuple[str, ...] = ()
    mdns: bool = True
    psk: str = ""
    announce: str = "boundaries"
    announce_hold_s: float = 60.0
    replicas: int = 3
    upload_bytes: int = 0
    accept: str | tuple[str, ...] = "lan"
    exact: str = "any"

    @property
    def accepted(self) -> Accept:
        """`accept`, to decide by."""
        for policy in get_args(Policy):
            if self.accept == policy:
                return Accept(policy)
        return Accept("own", frozenset(map(bytes.fromhex, self.accept)))

    @property
    def finds_neighbours(self) -> bool:
        """Whether mDNS is to run: who listens on loopback alone is nowhere to be found."""
        return self.mdns and not all(_is_loopback(each) for each in self.listen)


@dataclass(frozen=True)
class NetworkFlags:
    """What `gliad start` was told, over what is in glia.toml."""

    offline: bool = False
    listen: tuple[str, ...] = ()
    bootstrap: tuple[str, ...] = ()

    def argv(self) -> list[str]:
        """As a command line has them."""
        words = ["--offline"] if self.offline else []
        for flag, values in (("--listen", self.listen), ("--bootstrap", self.bootstrap)):
            for value in values:
                words += [flag, value]
        return words

    def over(self, config: NetworkConfig) -> NetworkConfig:
        """The settings with these. Raises: BadRequest."""
        if self.offline and (self.listen or self.bootstrap):
            raise BadRequest("--offline leaves nothing to listen on, and nobody to connect to")
        if self.offline:
            return replace(config, enabled=False)
        for text in self.listen:
            if not is_listen_address(text):
                raise BadRequest(f"--listen: not an address: {text[:60]!r}", hint=LISTEN_HINT)
        for text in self.bootstrap:
            if not is_peer_address(text):
                raise BadRequest(f"--bootstrap: not a peer: {text[:60]!r}", hint=PEER_HINT)
        if not (self.listen or self.bootstrap):
            return config
        return replace(
            config,
            enabled=True,
            listen=self.listen or config.listen,
            bootstrap=tuple(dict.fromkeys((*config.bootstrap, *self.bootstrap))),
        )


def is_listen_address(text: str) -> bool:
    """Whether it names an IP address and a TCP port."""
    found = _LISTEN.fullmatch(text)
    return found is not None and _is_ip(found[1], found[2]) and int(found[3]) < 2**16


def is_peer_address(text: str) -> bool:
    """Whether it names an IP address or a host, a TCP port, and a peer."""
    found = _PEER.fullmatch(text)
    if found is None or not 0 < int(found[3]) < 2**16:
        return False
    return found[1].startswith("dns") or _is_ip(found[1], found[2])


def ip_of(address: str) -> str:
    """The IP address in a multiaddr to listen on."""
    return address.split("/")[2]


def peer_of(address: str) -> PeerId:
    """The peer in a multiaddr of one."""
    return PeerId(address.rpartition("/")[2])


def read_listen(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Raises: ConfigError."""
    return _read(table, key, default, is_listen_address, LISTEN_HINT)


def read_peers(table: Table, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    """Raises: ConfigError."""
    return _read(table, key, default, is_peer_address, PEER_HINT)


def read_psk(table: Table, key: str, default: str) -> str:
    """Raises: ConfigError, which does not show it."""
    text = table.text(key, default)
    if not _PSK.fullmatch(text):
        raise table.error(key, "not 64 hex digits", hint="openssl rand -hex 32 makes one")
    return text.lower()


def read_accept(table: Table, key: str, default: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """A policy's word, or a list of neurons. Raises: ConfigError."""
    if not table.is_list(key):
        text = table.text(key, str(default))
        if text not in get_args(Policy):
            raise table.error(key, f"unknown value {text[:80]!r}", hint=ACCEPT_HINT)
        return text
    neurons = table.texts(key, _MAX_NEURONS)
    for each in neurons:
        if not _NEURON.fullmatch(each):
            raise table.error(key, f"not a neuron: {each[:80]!r}", hint=ACCEPT_HINT)
    return tuple(each.lower() for each in neurons)


def _read(
    table: Table, key: str, default: tuple[str, ...], is_one: Callable[[str], bool], hint: str
) -> tuple[str, ...]:
    texts: Sequence[str] = table.texts(key, MAX_ADDRESSES) if key in table else default
    for text in texts:
        if not is_one(text):
            raise table.error(key, f"not an address: {text[:60]!r}", hint=hint)
    return tuple(texts)


def check_free(addresses: Sequence[str]) -> None:
    """See that these can be listened on now. Raises: NetworkError."""
    for address in addresses:
        kind, host, _, port = address.split("/")[1:]
        family = socket.AF_INET if kind == "ip4" else socket.AF_INET6
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, int(port)))
        except OSError as error:
            raise NetworkError(
                f"--listen: {address}: {error.strerror}",
                hint="give another port, 0 is any that is free, or an address of this machine",
            ) from error


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(ip_of(address)).is_loopback


def _is_ip(kind: str, text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == (4 if kind == "ip4" else 6)
    except ValueError:
        return False
