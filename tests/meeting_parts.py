"""An engine on virtual time, beside which a resolver fetches (tests/resolver_parts.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import trio

from glia.graph.window import WindowRecord
from glia.local.messages import Emitted, Progress
from glia.local.values import FetchedValue
from simulations.virtual.engine import ScriptedEngine
from tests.builders import CLASS, Chain
from tests.resolver_parts import Node, chain_of


@dataclass(frozen=True)
class Answered:
    """What a prompt cost: seconds to its first token, windows computed and taken, what was told."""

    took_s: float
    num_computed: int
    num_adopted: int
    value: FetchedValue
    told: Sequence[Progress | Emitted]


async def answer(
    node: Node,
    chain: Chain,
    on_piece: Callable[[int], Awaitable[None]] | None = None,
) -> Answered:
    """Resolve a public prompt, compute it, and end."""
    began_s = trio.current_time()
    resolved = await node.begin(chain)
    engine = ScriptedEngine(node, chain, resolved)
    engine.on_piece = on_piece
    await engine.answer()
    took_s = trio.current_time() - began_s
    await resolved.end()
    await resolved.until_relayed()
    assert await node.matched(chain) == len(chain.records)
    value = resolved.value()
    return Answered(took_s, engine.num_computed, engine.num_adopted, value, engine.told)


def false_chain(num_windows: int) -> Chain:
    """The tokens of `chain_of`, and whole windows of our class; but K and V are others."""
    other = chain_of(num_windows, numerics_class="native:other")
    records: list[WindowRecord] = []
    for record in other.records:
        prev = records[-1].window_id if records else record.prev
        records.append(replace(record, numerics_class=CLASS, prev=prev))
    return replace(other, records=tuple(records))
