"""An announcer on the virtual network, where everything is on one clock and no thread works."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from daemon.announcer import Announcer
from daemon.hearing import Hearing
from glia.graph.chain import prefix_keys
from glia.graph.ids import BlockId, ModelId, WindowId, genesis_window
from glia.graph.link import accept_link, sign_link
from glia.graph.neuron import NeuronId, Signer
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from glia.store.heard import Heard
from glia.store.published import Published
from p2p.announcing import held_until_s
from p2p.hints import Hints
from p2p.host import Directory, Gossip
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from simulations.virtual.chains import CLASS, MODEL, Chain, make_profile, make_tokens
from simulations.virtual.machine import STARTED_S
from simulations.virtual.machine import world_s as now_s
from simulations.virtual.ports import at_once

SIGNER = Signer(b"\1" * 32)


def is_link(key: bytes, value: bytes) -> bool:
    return accept_link(value, STARTED_S + 10**9).claim.prefix_key == key


@dataclass
class Net:
    """What an announcer needs of a node."""

    host: SimHost
    published: Published
    heard: Heard
    signer: Signer = SIGNER
    kept: list[WindowId] = field(default_factory=list)
    gone: set[WindowId] = field(default_factory=set)  # windows of which there are no blocks here
    counters: Counter[str] = field(default_factory=Counter)
    why_off: str = ""
    hints: Hints = field(default_factory=lambda: Hints(bytes(32), lambda _: False, lambda _: ""))

    @property
    def believing(self) -> Self:
        """All that is asked of it is here."""
        return self

    def takes(self) -> Callable[[NeuronId], bool]:
        return lambda _: True

    @property
    def directory(self) -> Directory:
        return self.host.directory

    @property
    def gossip(self) -> Gossip:
        return self.host.gossip

    def is_here(self, window_id: WindowId) -> bool:
        return window_id not in self.gone

    def close(self) -> None:
        self.published.close()
        self.heard.close()


def net_of(net: Internet, name: str, path: Path) -> Net:
    """A host of the world with indices of its own, those of before where there are any."""
    host = net.host(name, validate=is_link)
    return Net(host, Published(path / f"{name}-published"), Heard(path / f"{name}-heard"))


def announcer_of(
    net: Net,
    models: tuple[ModelId, ...] = (MODEL,),
    seed: int = 0,
    *,
    is_silent: bool = False,
    replicas: int = 0,
) -> Announcer:
    """Its announcer; who listens does so with `Hearing.run` in threads."""
    hearing = Hearing(net, now_s)
    source = random.Random(seed)
    return Announcer(
        net,
        hearing,
        net.is_here,
        lambda: models,
        source,
        keep=net.kept.append,
        replicas=replicas,
        is_silent=is_silent,
        now_s=now_s,
        call=at_once,
    )


def publish(net: Net, chain: Chain, start: int = 0, *, hold_s: float = 60.0) -> None:
    """Windows of a chain from `start` on, with their links."""
    said = net.published.unsigned(SIGNER.neuron, claims(chain.records, 0))
    at_s = int(STARTED_S)
    first = net.published.last_sequence(SIGNER.neuron) + 1
    links = [sign_link(SIGNER, claim, number, at_s) for number, claim in enumerate(said, first)]
    net.published.put(chain.records[start:], links, held_until_s(now_s(), hold_s))


def long_chain(num_windows: int, num_layers: int) -> Chain:
    """Records without particles: only names are announced."""
    profile = make_profile(num_layers=num_layers)
    size, source = profile.block_size, random.Random(22)
    tokens = make_tokens(num_windows * size)
    records: list[WindowRecord] = []
    before = genesis_window(MODEL, profile.profile_id)
    for at in range(0, len(tokens), size):
        blocks = tuple(BlockId(source.randbytes(32)) for _ in range(num_layers))
        records.append(
            WindowRecord(
                MODEL, profile.profile_id, CLASS, before, at, tokens[at : at + size], blocks
            )
        )
        before = WindowId(records[-1].window_id)
    keys = tuple(prefix_keys(MODEL, profile, tokens))
    return Chain(profile, MODEL, tokens, tuple(records), (), keys)
