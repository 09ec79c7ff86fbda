"""What cannot be loaded keeps a node from the network, and from nothing else."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from daemon.joining import load_libp2p
from glia.errors import NetworkError


class Broken(ModuleType):
    """Another version: it imports, up to something that is called otherwise there."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("it is another one")


def test_whatever_importing_libp2p_raises_is_a_fault_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "p2p.libp2p.network", Broken("p2p.libp2p.network"))
    with pytest.raises(NetworkError, match="libp2p cannot be loaded: it is another one"):
        load_libp2p()
