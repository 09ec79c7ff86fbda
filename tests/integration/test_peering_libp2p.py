"""Peering on libp2p: its own network, the bulk path, and the signs of life."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from multiaddr import Multiaddr

from daemon.joining import libp2p_join
from daemon.network_config import NetworkConfig
from daemon.neuron_file import NeuronFile
from daemon.peer_file import PeerFile
from daemon.peering import Peering
from daemon.reaching import reach
from glia.errors import PeerUnreachable
from glia.graph.neuron import Signer
from glia.store.heard import Heard
from glia.store.published import Published
from p2p.bulk.stream import BulkStream
from p2p.host import Address, Found, Limits, PeerId
from p2p.ledger import Ledger
from p2p.libp2p.names import dialable
from p2p.libp2p.network import Network
from p2p.messages import BLOCKS, FIND
from tests.builders import make_chain
from tests.exchange_parts import ChainOffer
from tests.network_parts import until

PSK = "ab" * 32
CONFIG = NetworkConfig(enabled=True, listen=("/ip4/127.0.0.1/tcp/0",))


def make(directory: Path, config: NetworkConfig = CONFIG) -> Peering:
    directory.mkdir(exist_ok=True)
    return Peering(
        config,
        libp2p_join(config, secrets.token_bytes(32), Limits(), "gliad/test"),
        Signer(bytes(32)),
        Published(directory / "published"),
        Heard(directory / "heard"),
        PeerFile(directory / "peers.json"),
        NeuronFile(directory / "neurons.json"),
    )


def run(main: Callable[..., Awaitable[None]], *nodes: Peering) -> None:
    async def start() -> None:
        async with trio.open_nursery() as nursery:
            for each in nodes:
                await nursery.start(each.run)
            await main(*nodes)
            nursery.cancel_scope.cancel()

    trio.run(start)


def found(peering: Peering) -> Found:
    return Found(peering.host.peer_id, tuple(peering.host.addresses()))


def test_blocks_take_the_bulk_path_and_questions_do_not(tmp_path: Path) -> None:
    async def main(one: Peering, other: Peering) -> None:
        other.serve(ChainOffer(make_chain(2)))
        await one.meet(found(other))
        for protocol, is_bulk in ((BLOCKS, True), (FIND, False)):
            stream = await one.open_stream(other.host.peer_id, protocol)
            assert isinstance(stream, BulkStream) is is_bulk
            await stream.reset()
        assert (one.counts()["bulk_streams"], one.counts().get("bulk_failed")) == (1, None)
        await until(lambda: other.counts().get("bulk_streams") == 1)

    run(main, make(tmp_path / "one"), make(tmp_path / "other"))


class OneName(trio.abc.HostnameResolver):
    """Knows friend.example, and asks nobody."""

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, *rest: Any) -> Any:
        if host != b"friend.example":
            raise socket.gaierror("no such name")
        return [(family, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe, suppress(OSError):
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no loopback of IPv6")
def test_each_side_sees_where_the_other_one_is_of_ipv6_too() -> None:
    async def main() -> None:
        one, two = (
            Network(key, [Address("/ip6/::1/tcp/0")], limits=Limits(), validate=_nothing, agent="")
            for key in (b"\1" * 32, b"\2" * 32)
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(one.run)
            await nursery.start(two.run)
            await one.host.connect(two.host.addresses()[0])
            with trio.fail_after(60):
                while not two.host.connections():
                    await trio.sleep(0.01)
            for each in (one, two):
                assert [found.remote_ip for found in each.host.connections()] == ["::1"]
            nursery.cancel_scope.cancel()

    trio.run(main)


def _nothing(*_: object) -> bool:
    return False


@pytest.mark.parametrize("kind", ["dns", "dns4"])
def test_names_that_the_user_gave_are_looked_up_and_no_others(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[object] = []

    async def look_up(address: object, **_: object) -> list[object]:
        looked_up.append(address)
        return []

    monkeypatch.setattr("libp2p.transport.tcp.tcp.resolve_multiaddr_with_retry", look_up)

    async def main(one: Peering, other: Peering) -> None:
        trio.socket.set_custom_hostname_resolver(OneName())
        (address,) = other.host.addresses()
        named = Address(address.replace("/ip4/127.0.0.1", f"/{kind}/friend.example"))
        with pytest.raises(PeerUnreachable):  # one that a peer told is not
            await one.meet(Found(other.host.peer_id, (named,)))
        assert not looked_up
        assert dialable([Multiaddr(named), Multiaddr(address)], other.host.peer_id) == (address,)
        one.kept.keep(other.host.peer_id, [named])
        await until(lambda: other.host.connections())
        with pytest.raises(PeerUnreachable, match="looked up"):
            await reach(one.host, [Address(named.replace("friend", "nobody"))])

    run(main, make(tmp_path / "one"), make(tmp_path / "other"))


def test_who_connects_and_leaves_is_in_the_ledger(tmp_path: Path) -> None:
    async def main(one: Peering, other: Peering) -> None:
        await one.meet(found(other))
        peer = one.host.peer_id
        await until(lambda: other.ledger.entry(peer) is not None)
        entry = other.ledger.entry(peer)
        assert entry is not None
        entry.seen_s = 0.0
        await one.host.disconnect(other.host.peer_id)
        await until(lambda: (other.ledger.entry(peer) or entry).seen_s > 0)

    run(main, make(tmp_path / "one"), make(tmp_path / "other"))


@pytest.mark.parametrize(("psk", "is_in"), [(PSK, True), ("cd" * 32, False), ("", False)])
def test_a_network_with_a_secret(psk: str, is_in: bool, tmp_path: Path) -> None:
    async def main(one: Peering, other: Peering) -> None:
        if is_in:
            await one.meet(found(other))
            assert await one.host.ping(other.host.peer_id) > 0
        else:
            with pytest.raises(PeerUnreachable):
                await one.meet(found(other))
            assert not other.host.connections()

    run(
        main,
        make(tmp_path / "one", replace(CONFIG, psk=psk)),
        make(tmp_path / "other", replace(CONFIG, psk=PSK)),
    )


def test_a_banned_name_that_is_no_peer_keeps_nobody_from_starting(tmp_path: Path) -> None:
    async def main(one: Peering) -> None:
        assert one.ledger.is_banned(PeerId("nobody"))
        assert one.why_off == ""

    directory = tmp_path / "one"
    directory.mkdir()
    ledger = Ledger()
    ledger.ban(PeerId("nobody"), True, 0.0)
    file = PeerFile(directory / "peers.json")
    file.save(file.encode(ledger, {}))
    run(main, make(directory))


@pytest.mark.fault("F36")
def test_libp2p_that_breaks_is_begun_anew_on_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(one: Peering, other: Peering) -> None:
        await one.meet(found(other))
        place = other.host.addresses()
        broken = other._ports._swarm.manager  # type: ignore[attr-defined]

        async def fail() -> None:
            raise RuntimeError("libp2p broke")

        broken.run_task(fail, _internal=True)
        await until(lambda: other.why_off == "RuntimeError('libp2p broke')")
        await until(lambda: other.why_off == "")
        assert other.counts()["network_faults"] == 1
        assert other.host.addresses() == place
        await one.meet(found(other))
        assert [each.peer for each in one.host.connections()] == [other.host.peer_id]

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = replace(CONFIG, listen=(f"/ip4/127.0.0.1/tcp/{port}",))
    run(main, make(tmp_path / "one"), make(tmp_path / "other", config))
