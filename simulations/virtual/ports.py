"""A Peering on the simulated internet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from daemon.joining import OnChange
from daemon.network_config import NetworkConfig
from daemon.neuron_file import NeuronFile
from daemon.peer_file import PeerFile
from daemon.peering import Peering
from glia.graph.neuron import Signer
from glia.store.heard import Heard
from glia.store.published import Published
from p2p.host import Address
from p2p.testing.gossip import SimGossip
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.testing.records import SimDirectory

T = TypeVar("T")
NOBODY = Signer(bytes(32))


async def at_once(call: Callable[[], T], /) -> T:
    """Calls that do not block need no thread, and leave virtual time as it is."""
    await trio.lowlevel.checkpoint()
    return call()


class SimPorts:
    """The ports of a simulated host, until `fail`, or from the start with `fault`."""

    def __init__(self, host: SimHost) -> None:
        self.host = host
        self.neighbours = None
        self.twin = Address("")
        self.fault: Exception | None = None
        self._is_broken = trio.Event()

    @property
    def directory(self) -> SimDirectory:
        return self.host.directory

    @property
    def gossip(self) -> SimGossip:
        return self.host.gossip

    def fail(self, fault: Exception | None) -> None:
        """None: they just end."""
        self.fault = fault
        self._is_broken.set()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        if self.fault is None:
            task_status.started()
        else:
            self._is_broken.set()
        await self._is_broken.wait()
        if self.fault is not None:
            raise self.fault


class Joined:
    """Makes the ports of a host, and keeps all that it made."""

    def __init__(self, net: Internet, name: str) -> None:
        self._net, self._name = net, name
        self.made: list[SimPorts] = []
        self.faults: list[Exception] = []  # of the next ones, at once

    def __call__(self, on_change: OnChange) -> SimPorts:
        self.made.append(SimPorts(self._net.host(self._name)))
        if self.faults:
            self.made[-1].fault = self.faults.pop(0)
        return self.made[-1]


def make_peering(
    directory: Path,
    join: Joined,
    *bootstrap: str,
    accept: str | tuple[str, ...] = "known",
    signer: Signer = NOBODY,
) -> Peering:
    """Its stores are opened here, and closed with the process."""
    directory.mkdir(exist_ok=True)
    config = NetworkConfig(enabled=True, listen=(), bootstrap=bootstrap, accept=accept)
    peering = Peering(
        config,
        join,
        signer,
        Published(directory / "published"),
        Heard(directory / "heard"),
        PeerFile(directory / "peers.json"),
        NeuronFile(directory / "neurons.json"),
    )
    peering.verify = at_once  # virtual time would run on while a thread works
    return peering
