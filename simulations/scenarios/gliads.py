"""Real gliads with one system prompt, on loopback."""

from __future__ import annotations

from contextlib import ExitStack

from simulations.bench.node import Node
from simulations.processes.gliads import WIDE, address_of, ask, models_dir, online, words
from simulations.scenario import Check, Outcome, Scenario, Setting, Value

_SYSTEM_TOKENS = 1280  # whole windows, so nothing is lost to rounding
_SUFFIX_TOKENS = 64


def run(setting: Setting) -> Outcome:
    """Each node is asked once, one after the other; the first one meets them all."""
    system = words(_SYSTEM_TOKENS, f"system {setting.seed}")
    rows: list[dict[str, Value]] = []
    nodes: list[Node] = []
    alone: list[list[int]] = []
    shared: list[list[int]] = []
    prompts = [system + words(_SUFFIX_TOKENS, f"{setting.seed} {n}") for n in range(setting.nodes)]
    with models_dir(WIDE) as path, ExitStack() as stack:
        for number, prompt in enumerate(prompts):
            known = [address_of(nodes[0])] if nodes else []
            nodes.append(stack.enter_context(online(path, f"node{number}", known)))
            ask(nodes[-1], words(32, "load"))
            answer = ask(nodes[-1], prompt, _SYSTEM_TOKENS)
            shared.append(list(answer.tokens))
            rows.append(
                {
                    "node": number,
                    "from peers": answer.usage.cached.peers,
                    "computed": answer.usage.computed,
                    "why no more": answer.fetched.why if answer.fetched else "",
                    "first token ms": answer.ttft_ms,
                }
            )
        alone = [list(ask(nodes[0], prompt, _SYSTEM_TOKENS).tokens) for prompt in prompts]
    num_computed = sum(int(row["computed"]) for row in rows)
    once = _SYSTEM_TOKENS + setting.nodes * _SUFFIX_TOKENS
    return Outcome(
        table=rows,
        checks=(
            Check("tokens computed by all, beyond one system prompt and the suffixes",
                  num_computed - once, "<=", 0),
            Check("answers that differ from the first node's",
                  sum(a != b for a, b in zip(shared, alone, strict=True)), "==", 0),
        ),
    )  # fmt: skip


SCENARIO = Scenario(
    name="gliads",
    claim="Real gliads with one system prompt compute it once, and answer alike.",
    rows=(51,),
    world="processes",
    usual=Setting(6),
    quick=Setting(3),
    least=2,
    run=run,
)
