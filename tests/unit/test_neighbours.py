"""Where a node says that it is, and mDNS: without a LAN, and where interfaces come and go."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from multiaddr import Multiaddr

from p2p.host import Address, Found
from p2p.libp2p import basic, mdns
from p2p.libp2p.mdns import Neighbours

PEER = "12D3KooWQYhTNQdmr3ArTeUHRYzFg94BKyTkoWBDWez9kSCVe2Xo"


def at(ip: str) -> Address:
    return Address(f"/ip4/{ip}/tcp/4001/p2p/{PEER}")


class FakeZeroconf:
    """What zeroconf is asked for."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        if "192.0.2.99" in interfaces:
            raise OSError(19, "No such device")
        self.interfaces = list(interfaces)
        self.services: list[Any] = []
        self.is_closed = False
        MADE.append(self)

    def register_service(self, service: Any) -> None:
        self.services.append(service)

    def close(self) -> None:
        self.is_closed = True


class FakeBrowser:
    def __init__(self, *_args: Any, **_named: Any) -> None:
        pass

    def cancel(self) -> None:
        pass


MADE: list[FakeZeroconf] = []


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    monkeypatch.setattr(mdns, "Zeroconf", FakeZeroconf)
    monkeypatch.setattr(mdns, "ServiceBrowser", FakeBrowser)


def run(addresses: list[Address], main: Callable[[Neighbours], Awaitable[None]]) -> None:
    def found(_: Found) -> None:
        raise AssertionError("nobody is there")

    async def in_time() -> None:
        async with trio.open_nursery() as nursery:
            neighbours = Neighbours(lambda: addresses, found)
            nursery.start_soon(neighbours.run)
            await main(neighbours)
            nursery.cancel_scope.cancel()

    trio.run(in_time, clock=trio.testing.MockClock(rate=1000))


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(60_000):  # a minute: the clock only runs faster, as threads work
        while not holds():
            await trio.sleep(1)


def test_what_does_not_work_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    addresses = [at("192.0.2.99")]

    async def main(neighbours: Neighbours) -> None:
        await until(lambda: "No such device" in neighbours.state)
        await trio.sleep(100)
        addresses[:] = [at("192.0.2.1")]
        await until(lambda: neighbours.state == "on")

    with caplog.at_level(logging.WARNING):
        run(addresses, main)
    assert len(caplog.records) == 1
    assert MADE[-1].interfaces == ["192.0.2.1"]
    assert MADE[-1].is_closed


def test_nothing_is_sent_where_only_loopback_is() -> None:
    anywhere = at("0.0.0.0")  # noqa: S104 -- nothing is bound
    addresses = [at("127.0.0.1"), anywhere, Address(f"/dns4/localhost/tcp/1/p2p/{PEER}")]

    async def main(neighbours: Neighbours) -> None:
        await trio.sleep(100)  # it looks at 0, 60, ...
        assert (neighbours.state, MADE) == ("alone", [])
        addresses.append(at("192.0.2.1"))
        await until(lambda: neighbours.state == "on")
        assert MADE[0].interfaces == ["192.0.2.1"]
        (service,) = MADE[0].services
        assert list(service.properties.values()) == [at("192.0.2.1").encode()]

    run(addresses, main)


def test_an_interface_that_comes_or_goes_is_followed() -> None:
    addresses = [at("192.0.2.1")]

    async def main(neighbours: Neighbours) -> None:
        await until(lambda: len(MADE) == 1)
        addresses.append(at("192.0.2.2"))
        await until(lambda: len(MADE) == 2)
        assert MADE[0].is_closed
        assert MADE[1].interfaces == ["192.0.2.1", "192.0.2.2"]
        addresses.clear()
        await until(lambda: neighbours.state == "alone")
        assert MADE[1].is_closed

    run(addresses, main)


@pytest.mark.parametrize(
    ("listen", "interfaces", "shown"),
    [
        ("/ip4/0.0.0.0/tcp/4001", ["/ip4/192.0.2.1/tcp/4001"], ["/ip4/192.0.2.1/tcp/4001"]),
        ("/ip4/0.0.0.0/tcp/4001", [], ["/ip4/127.0.0.1/tcp/4001"]),
        ("/ip4/0.0.0.0/tcp/4001", ["/ip4/0.0.0.0/tcp/4001"], ["/ip4/127.0.0.1/tcp/4001"]),
        ("/ip6/::/tcp/4001", [], ["/ip6/::1/tcp/4001"]),
        ("/ip4/192.0.2.7/tcp/1", ["/ip4/192.0.2.1/tcp/4001"], ["/ip4/192.0.2.7/tcp/1"]),
    ],
)
def test_no_address_that_is_shown_means_all(
    listen: str, interfaces: list[str], shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expanded = [Multiaddr(text) for text in interfaces]
    monkeypatch.setattr(basic, "expand_wildcard_address", lambda address: expanded)
    assert [str(each) for each in basic._without_wildcards([Multiaddr(listen)])] == shown
