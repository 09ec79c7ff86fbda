"""A long conversation is published at once: what its directory and topic hear (SECURITY F22)."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from glia.graph.boundaries import announced
from p2p.announcing import topic_of
from p2p.testing.internet import Internet
from simulations.scenario import Check, Outcome, Scenario, Setting, figures
from simulations.virtual.announcing import announcer_of, long_chain, net_of, publish
from simulations.virtual.chains import MODEL, TINY
from simulations.virtual.crowd import in_crowd

_NUM_TOKENS = 131_072
_HOLD_S = 60.0
_RATE_WINDOW_S = 10.0
_MOST_IN_WINDOW = 64  # what a receiver takes of one peer (p2p/libp2p/kad.py, caps.py)


def run(setting: Setting) -> Outcome:
    num_windows = _NUM_TOKENS // TINY.block_size
    chain = long_chain(num_windows, 1)

    async def main(net: Internet, path: Path) -> Outcome:
        ours = net_of(net, "ours", path)
        heard: list[bytes] = []
        for number in range(setting.nodes - 1):
            other = net.host(f"other {number}")
            other.gossip.join(topic_of(MODEL), lambda _, data: heard.append(data))
            await ours.host.connect(other.addresses()[0])
        publish(ours, chain, hold_s=_HOLD_S)
        times: list[float] = []
        provide = ours.host.directory.provide

        async def watched(key: bytes) -> None:
            times.append(trio.current_time())
            await provide(key)

        ours.host.directory.provide = watched  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(announcer_of(ours, seed=setting.seed).run)
            await trio.sleep(_HOLD_S)
            num_early = len(times)
            before = net.trace.counts["asked"]
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
        ours.close()
        num = ours.counters["announced"]
        most = max((sum(0 <= t - s < _RATE_WINDOW_S for t in times) for s in times), default=0)
        return Outcome(
            table=figures(
                {
                    "tokens": len(chain.tokens),
                    "windows": num_windows,
                    "boundaries announced": num,
                    "keys told to the directory": len(times),
                    "of them within 10 s, at most": most,
                    "messages to peers of the directory": net.trace.counts["asked"] - before,
                    "messages of the topic that others heard": len(heard),
                }
            ),
            checks=(
                Check("boundaries, all", num, "==", len(announced(num_windows))),
                Check("boundaries", num, "<=", 2 + math.log2(len(chain.tokens) / 256)),
                Check("announcements before the hold ended", num_early, "==", 0),
                Check("keys within 10 s", most, "<=", _MOST_IN_WINDOW),
                Check("not announced a minute later", ours.counters["announce_backlog"], "==", 0),
                Check("announcements that failed", ours.counters["announce_failed"], "==", 0),
            ),
            trace=net.trace.digest(),
        )

    with TemporaryDirectory(prefix="gliad-announcing-") as directory:
        return in_crowd(setting.seed, lambda net: main(net, Path(directory)))


SCENARIO = Scenario(
    name="announcing",
    claim="A conversation of 131,072 tokens is announced within a minute, with few records.",
    rows=(42,),
    faults=("F22",),
    world="virtual",
    usual=Setting(50),
    quick=Setting(30),
    least=10,
    run=run,
)
