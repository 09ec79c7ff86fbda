"""What networks cost that are too large to be run: a model, its constants measured in small ones.

A look-up of n nodes takes a + b log2(n) messages, and c + d log2(n) seconds; a, b, c and d are the
least squares of networks that were run. Telling the directory of a key takes a look-up and
a message to each of NUM_CLOSEST keepers. At each boundary of a chain three things are told: who has
the prefix key, who has the window, and the link. So a node with k chains of w windows sends

    k * 3 * boundaries(w) / (AGAIN_S - AGAIN_SPREAD_S / 2) * (look-up + NUM_CLOSEST)

messages a second, and keeps k * 3 * boundaries(w) * NUM_CLOSEST records of others, whatever n is;
each takes as much memory as is measured here. All nodes are alike in it, and none is overloaded.
What it says of the largest network that was run, which it was not fitted to, and of a publisher
that was run, is compared with these.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass

import blake3

from glia.graph.boundaries import announced
from p2p.announcing import AGAIN_S, AGAIN_SPREAD_S
from p2p.claims import Claims, Draw
from p2p.host import Address
from p2p.lookup import NUM_CLOSEST
from p2p.testing.names import address_of, peer_id_of
from simulations.scenario import Check, Curve, Outcome, Picture, Scenario, Setting, Value
from simulations.scenarios import announcing
from simulations.scenarios.scale import among, doubled

_FEWEST = 25
_LARGE = (10_000, 100_000, 1_000_000, 10_000_000)
_CHAINS = 100  # of a node, each of so many windows
_CHAIN_WINDOWS = 8192
_NUM_RECORDS = 2000  # put, to see what one takes
_TOLD = 3  # at a boundary: the key, the window, the link
_MOST_ERROR = 0.2


@dataclass(frozen=True)
class Line:
    """y = first + per_doubling * log2(x)."""

    first: float
    per_doubling: float

    def at(self, num: float) -> float:
        return self.first + self.per_doubling * math.log2(num)


def fit(nums: Sequence[int], values: Sequence[float]) -> Line:
    """Least squares."""
    x = [math.log2(num) for num in nums]
    mean_x, mean_y = sum(x) / len(x), sum(values) / len(values)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, values, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )
    return Line(mean_y - slope * mean_x, slope)


def record_bytes() -> float:
    """What one record of the directory takes in memory, to a hundred bytes."""
    claims = Claims[tuple[Address, float]](Draw(bytes(32)), lambda _: False)
    peers = [peer_id_of(0, f"peer {number}") for number in range(_NUM_RECORDS)]
    tracemalloc.start()
    for number, peer in enumerate(peers):
        key = blake3.blake3(b"%d" % number).digest()
        claims.put(key, peer, (address_of(number, peer), 0.0))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round(used / _NUM_RECORDS, -2)


def error(said: float, found: float) -> float:
    """Of a prediction, as a share."""
    return abs(said / found - 1)


def row_of(num: int, messages: Line, seconds: Line, memory: float) -> dict[str, Value]:
    """What the model says of a network."""
    told = _CHAINS * _TOLD * len(announced(_CHAIN_WINDOWS))
    told_per_s = told / (AGAIN_S - AGAIN_SPREAD_S / 2)
    return {
        "nodes": num,
        "messages a look-up": messages.at(num),
        "seconds a look-up": seconds.at(num),
        "messages/s a publisher sends": told_per_s * (messages.at(num) + NUM_CLOSEST),
        "records a node keeps": told * NUM_CLOSEST,
        "MB of records": told * NUM_CLOSEST * memory / 1e6,
    }


def run(setting: Setting) -> Outcome:
    nodes = doubled(_FEWEST, setting.nodes, 2)
    costs = [among(num, setting.seed) for num in nodes]
    messages = fit(nodes[:-1], [cost.num_messages for cost in costs[:-1]])
    seconds = fit(nodes[:-1], [cost.took_s for cost in costs[:-1]])
    told = {row["what"]: row["found"] for row in announcing.run(announcing.SCENARIO.quick).table}
    said = (
        _TOLD
        * int(told["boundaries announced"])
        * (messages.at(announcing.SCENARIO.quick.nodes) + NUM_CLOSEST)
    )
    memory = record_bytes()
    return Outcome(
        table=[row_of(num, messages, seconds, memory) for num in (*nodes, *_LARGE)],
        checks=(
            Check(f"error of messages at {nodes[-1]} nodes",
                  error(messages.at(nodes[-1]), costs[-1].num_messages), "<=", _MOST_ERROR),
            Check(f"error of seconds at {nodes[-1]} nodes",
                  error(seconds.at(nodes[-1]), costs[-1].took_s), "<=", _MOST_ERROR),
            Check("error of what a publisher sends",
                  error(said, float(told["messages to peers of the directory"])), "<=",
                  _MOST_ERROR),
            Check("messages of a look-up among 10,000,000 nodes / among 10,000",
                  messages.at(_LARGE[-1]) / messages.at(_LARGE[0]), "<=", 2.0),
        ),
        picture=Picture(
            "nodes", "messages a look-up",
            [Curve("measured", nodes, [cost.num_messages for cost in costs]),
             Curve("model", [*nodes, *_LARGE], [messages.at(n) for n in (*nodes, *_LARGE)])],
            is_log_x=True,
        ),
    )  # fmt: skip


SCENARIO = Scenario(
    name="growth",
    claim="A model fitted to small networks holds for larger ones; it says what 10^7 nodes cost.",
    rows=(42,),
    world="model",
    usual=Setting(800),
    quick=Setting(200),
    least=100,
    run=run,
)
