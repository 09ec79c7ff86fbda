"""The network: whether it is on, where it listens, whom it finds."""

from __future__ import annotations

from collections.abc import Iterator

from daemon.doctor.finding import Finding, Subject
from daemon.network_config import NetworkConfig
from glia.local.network_values import NetworkValue

_OFF = "off: this node neither shows nor takes anything"
_MDNS = "allow multicast and UDP port 5353, or set [network] mdns = false"
_FINE = {
    "on": "nodes on this LAN find it",
    "alone": "on, but there is no interface other than loopback",
}
_COPIED = (
    "its data dir, or this one, is a copy: stop one of them, remove its peer.key (and neuron.key, "
    "unless both are to sign as one), and start it again"
)
_PORT = (
    "end the program that has the port, or change [network] listen; gliad stop, then gliad start"
)


def look(subject: Subject) -> Iterator[Finding]:
    """What a running gliad says of it, else what the settings make of it."""
    config, status = subject.config.network, subject.status
    if status is None:
        yield _settings(config)
    elif status.network is None:
        how = "it was started with --offline" if config.enabled else "[network] enabled = false"
        yield Finding("network", "ok", f"{_OFF}; {how}")
    else:
        yield _on(status.network)
        if status.network.peer_id:
            if status.network.twin:
                yield _twin(status.network.twin)
            yield _lan(config, status.network)
            yield _peers(status.network)


def _settings(config: NetworkConfig) -> Finding:
    if not config.enabled:
        return Finding("network", "ok", f"{_OFF}; [network] enabled = false")
    lan = "looked for" if config.finds_neighbours else "not looked for"
    found = f"listens at {', '.join(config.listen) or 'no address'}; nodes on this LAN are {lan}"
    return Finding("network", "ok", found)


def _on(network: NetworkValue) -> Finding:
    if not network.why_off:
        found = f"at {', '.join(network.addresses) or 'no address'}"
        return Finding("network", "ok", found)
    if not network.peer_id:
        return Finding("network", "warn", f"not yet on: {network.why_off}", "gliad.log may tell")
    return Finding("network", "warn", f"off: {network.why_off}; it is tried again", _PORT)


def _twin(address: str) -> Finding:
    found = f"another node has this node's peer id: {address}"
    return Finding("peer id", "bad", found, _COPIED)


def _lan(config: NetworkConfig, network: NetworkValue) -> Finding:
    if network.mdns in _FINE:
        return Finding("mDNS", "ok", _FINE[network.mdns])
    if network.mdns != "off":
        return Finding("mDNS", "warn", f"nodes on this LAN are not found: {network.mdns}", _MDNS)
    how = "nobody on this LAN could reach it" if config.mdns else "[network] mdns = false"
    return Finding("mDNS", "ok", f"off: {how}")


def _peers(network: NetworkValue) -> Finding:
    if not network.num_known:
        return Finding("peers", "ok", "none is known yet: gliad peers add ADDRESS")
    found = f"{network.num_connected:,} of {network.num_known:,} known ones connected"
    return Finding("peers", "ok", found)
