"""Real gliads with one system prompt, on loopback."""

from __future__ import annotations

from contextlib import ExitStack

from simulations.bench.node import Node
from simulations.processes.gliads import address_of, ask, models_dir, online, words
from simulations.scenario import Check, Outcome, Scenario, Setting, Value

_SYSTEM_TOKENS = 1280
_SUFFIX_TOKENS = 64


def run(setting: Setting) -> Outcome:
    """Each node is asked once, one after the other; the first one meets them all."""
    system = words(_SYSTEM_TOKENS, f"system {setting.seed}")
    rows: list[dict[str, Value]] = []
    nodes: list[Node] = []
    alone: list[list[int]] = []
    shared: list[list[int]] = []
    prompts = [system + words(_SUFFIX_TOKENS, f"{setting.seed} {n}") for n in range(setting.nodes)]
    with models_dir() as path, ExitStack() as stack:
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
                    "first token ms": answer.ttft_ms,
                }
            )
        alone = [list(ask(nodes[0], prompt, _SYSTEM_TOKENS).tokens) for prompt in prompts]
    num_taken = sum(int(row["from peers"]) for row in rows)
    could = _SYSTEM_TOKENS * (setting.nodes - 1)
    return Outcome(
        table=rows,
        checks=(
            Check("share of the prompt that later nodes took", num_taken / could, ">=", 0.75),
            Check("answers that differ from the first node's",
                  sum(a != b for a, b in zip(shared, alone, strict=True)), "==", 0),
        ),
    )  # fmt: skip


SCENARIO = Scenario(
    name="gliads",
    claim="Real gliads with one system prompt take most of it from each other, and answer alike.",
    rows=(51,),
    world="processes",
    usual=Setting(6),
    quick=Setting(3),
    least=2,
    run=run,
)
