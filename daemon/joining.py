"""The network's ports on libp2p, made when they are wanted.

libp2p is imported here, in a function: it takes 50 MiB and a second, which a node that is
offline shall not have to spend, and one that is not only once it serves its own user
(tests/architecture.py names this exception).
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import trio

from daemon.network_config import NetworkConfig
from glia.errors import NetworkError
from p2p.host import Address, Directory, Gossip, Host, Limits, PeerId
from p2p.values import is_value

if TYPE_CHECKING:
    from p2p.libp2p.network import Network

_FILES_PER_CONNECTION = 4  # itself, and bulk streams; the store and engines have the rest
_FEWEST = 16
_MANY_FILES = 2**20
_log = logging.getLogger("gliad.peering")

OnChange = Callable[[PeerId, bool], None]


class Neighbours(Protocol):
    """Finds the nodes on the LAN. `state`: as NetworkValue.mdns."""

    state: str


class Ports(Protocol):
    """A node on the network, once: `run` it, and when that ends make another."""

    @property
    def host(self) -> Host: ...

    @property
    def directory(self) -> Directory: ...

    @property
    def gossip(self) -> Gossip: ...

    @property
    def neighbours(self) -> Neighbours | None:
        """None where those on the LAN are not looked for."""

    @property
    def twin(self) -> Address:
        """Where another node is that has this one's peer id; "" where none was heard of."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Be on the network until cancelled. Raises: NetworkError, and what libp2p raises."""


Join = Callable[[OnChange], Ports]


def limits_for(num_files: int) -> Limits:
    """What peers may use where this process may have so many descriptors."""
    usual = Limits()
    fit = max(_FEWEST, num_files // (2 * _FILES_PER_CONNECTION))
    if fit >= usual.max_connections:
        return usual
    _log.warning("only %d descriptors: at most %d connections to peers", num_files, fit)
    return replace(usual, max_connections=fit, max_pending=min(usual.max_pending, fit))


def num_files() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY_FILES if soft == resource.RLIM_INFINITY else soft


def load_libp2p() -> type[Network]:
    """Import it; may be done in a worker thread, ahead. Raises: NetworkError."""
    try:
        from p2p.libp2p.network import Network
    except Exception as error:  # whatever others' modules raise: the user is served without
        raise NetworkError(f"libp2p cannot be loaded: {error}") from error
    return Network


def libp2p_join(config: NetworkConfig, seed: bytes, limits: Limits, agent: str) -> Join:
    """What makes the ports; it raises NetworkError where libp2p is another version, or cannot
    be loaded. The first time that takes a second: see `load_libp2p`.

    Args:
        seed: of the node's peer key.
        agent: what other nodes are told this is.
    """

    def join(on_change: OnChange) -> Ports:
        return load_libp2p()(
            seed,
            [Address(each) for each in config.listen],
            limits=limits,
            validate=is_value,
            agent=agent,
            psk=config.psk or None,
            mdns=config.finds_neighbours,
            on_change=on_change,
        )

    return join
