"""A prompt that a peer has, over links that are slower and faster than computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import blake3
import trio

from daemon.prefill import USUAL_SPEED
from p2p.testing.road import Link
from simulations.scenario import Check, Curve, Outcome, Picture, Scenario, Setting, Value
from simulations.virtual.chains import Chain
from simulations.virtual.gliad import (
    HOLD_S,
    PROFILE,
    Answered,
    Neighbourhood,
    chain_of,
    in_neighbourhood,
    labels_of,
)

_NUM_WINDOWS = 96
_ALONE_S = _NUM_WINDOWS * PROFILE.block_size / USUAL_SPEED
_EVEN_BYTES_PER_S = _NUM_WINDOWS * PROFILE.window_particle_bytes / _ALONE_S
_RATES = (0.05, 0.25, 0.5, 1.0, 2.0, 4.0, 20.0, 1000.0)  # / break-even
_LATENCY_S = 0.01
_MOST = 1.1  # time to first token / computing alone

Prepare = Callable[[Neighbourhood], None]


def asked(
    chains: Sequence[Chain], seed: int, rate: float, prepare: Prepare
) -> tuple[list[Answered], int, str]:
    """Two prompts, one after the other: of the first the link's speed is not known yet."""
    link = Link(latency_s=_LATENCY_S, bytes_per_s=rate * _EVEN_BYTES_PER_S)

    async def main(world: Neighbourhood) -> tuple[list[Answered], int, str]:
        keeper = await world.add("keeper")
        for number, chain in enumerate(chains):
            await keeper.answer(f"c{number}", chain, labels_of(chain, _NUM_WINDOWS))
        await trio.sleep(2 * HOLD_S)
        asker = await world.add("asker")
        await trio.sleep(HOLD_S)
        prepare(world)
        answers = [
            await asker.answer(f"c{number}", chain, labels_of(chain, _NUM_WINDOWS))
            for number, chain in enumerate(chains)
        ]
        num_wrong = sum([not await asker.holds(chain) for chain in chains])
        return answers, num_wrong, world.net.trace.digest()

    return in_neighbourhood(seed, main, link)


def leave(world: Neighbourhood) -> None:
    """It is connected still, as far as anybody can tell."""
    world.net.vanish("keeper")


def run(setting: Setting) -> Outcome:
    cases: list[tuple[str, float, Prepare]] = [
        *((f"{rate:g}", rate, lambda _: None) for rate in _RATES),
        ("gone", 4.0, leave),
    ]
    chains = [chain_of(_NUM_WINDOWS, 10 * setting.seed + number) for number in range(2)]
    rows: list[dict[str, Value]] = []
    worst, num_wrong, traces = 0.0, 0, ""
    shares: list[float] = []
    for name, rate, prepare in cases:
        answers, wrong, trace = asked(chains, setting.seed, rate, prepare)
        num_wrong, traces = num_wrong + wrong, traces + trace
        for is_known, answered in enumerate(answers):
            share = answered.took_s / _ALONE_S
            worst = max(worst, share)
            shares.append(share)
            rows.append(
                {
                    "link / break-even": name,
                    "speed known": "yes" if is_known else "no",
                    "windows from it": answered.num_fetched,
                    "computed": answered.num_computed,
                    "first token s": answered.took_s,
                    "/ alone": share,
                }
            )
    known = shares[1 : 2 * len(_RATES) : 2]
    return Outcome(
        table=rows,
        checks=(
            Check("first token / computing alone, the worst", worst, "<=", _MOST),
            Check("the same, the link 20 times as fast", known[_RATES.index(20.0)], "<=", 0.5),
            Check("windows from a link 20 times as slow", int(rows[1]["windows from it"]), "<=",
                  _NUM_WINDOWS // 4),
            Check("prompts with a wrong block", num_wrong, "==", 0),
        ),
        trace=blake3.blake3(traces.encode()).hexdigest(),
        picture=Picture(
            "speed of the link / break-even", "first token / computing alone",
            [Curve("speed known", _RATES, known),
             Curve("not known", _RATES, shares[: 2 * len(_RATES) : 2])],
            is_log_x=True,
        ),
    )  # fmt: skip


SCENARIO = Scenario(
    name="slow-links",
    claim="What a link is too slow for is computed: never later than 1.1 times computing alone.",
    rows=(45, 62),
    world="virtual",
    usual=Setting(2),
    quick=Setting(2),
    least=2,
    run=run,
)
