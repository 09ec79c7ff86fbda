"""How far hosts are from each other, and what gets lost between them.

The figures are round ones, near to what was published, and not read from data. Round trips:
log-normal with a median of 159 ms and a mean of 180 ms, from which the spread follows, about those
of the King data set (1,740 name servers; Dabek et al., Vivaldi, SIGCOMM 2004). Segments sent
again: 1, 2 or 8 %, about what TCP saw in countries with good, usual and poor networks (Langley et
al., The QUIC Transport Protocol, SIGCOMM 2017). No claim hangs on their last digits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from p2p.testing.road import Link

_MEDIAN_RTT_S = 0.159
_MEAN_RTT_S = 0.180
_SPREAD = math.sqrt(2 * math.log(_MEAN_RTT_S / _MEDIAN_RTT_S))
_LOSSES = (0.01, 0.02, 0.08)
_BYTES_PER_S = 4e6
LAN = Link(latency_s=0.0005, bytes_per_s=125e6)


def published_roads(seed: int, loss: float | None = None) -> Callable[[str, str], Link]:
    """What is between two hosts, the same both ways. `loss`: of all roads; None: drawn."""

    def road(one: str, other: str) -> Link:
        first, second = sorted((one, other))
        source = random.Random(f"road {seed} {first} {second}")
        rtt_s = source.lognormvariate(math.log(_MEDIAN_RTT_S), _SPREAD)
        lost = source.choice(_LOSSES) if loss is None else loss
        return Link(latency_s=rtt_s / 2, bytes_per_s=_BYTES_PER_S, loss=lost)

    return road
