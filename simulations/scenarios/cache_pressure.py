"""Prompts that no tier has room for: a real gliad whose tiers are all too small."""

from __future__ import annotations

import statistics

from simulations.processes.gliads import Tiers, ask, models_dir, offline, words
from simulations.scenario import Check, Outcome, Scenario, Setting, Value

_SMALL = Tiers(l0_kib=2048, l1_kib=2048, staging_kib=1024, l2_kib=4096)
_PROMPT_TOKENS = 640
_NUM_ROUNDS = 2


def run(setting: Setting) -> Outcome:
    """The same prompts in turn, of one with room for all and one without. Nodes: prompts."""
    prompts = [words(_PROMPT_TOKENS, f"{setting.seed} {n}") for n in range(setting.nodes)]
    rows: list[dict[str, Value]] = []
    tokens: dict[str, list[list[int]]] = {}
    ttft: dict[str, float] = {}
    with models_dir() as path:
        for name, node in (
            ("with room", offline(path, "roomy")),
            ("without", offline(path, "small", _SMALL)),
        ):
            with node:
                ask(node, prompts[0][:32])  # loads the model
                answers = [ask(node, prompt) for _ in range(_NUM_ROUNDS) for prompt in prompts]
                with node.client() as client:
                    tiers = client.status().tiers
            tokens[name] = [list(answer.tokens) for answer in answers]
            again = answers[len(prompts) :]
            ttft[name] = statistics.median(answer.ttft_ms for answer in again)
            rows.append(
                {
                    "tiers": name,
                    "prompts": len(answers),
                    "tokens computed, second round": sum(a.usage.computed for a in again),
                    "median first token ms": ttft[name],
                    "evicted l0": tiers["l0"].evictions,
                    "evicted l1": tiers["l1"].evictions,
                    "evicted l2": tiers["l2"].evictions,
                }
            )
    wrong = sum(a != b for a, b in zip(tokens["with room"], tokens["without"], strict=True))
    return Outcome(
        table=rows,
        checks=(
            Check("answers that differ", wrong, "==", 0),
            Check("windows evicted from the smallest tiers",
                  int(rows[1]["evicted l1"]) + int(rows[1]["evicted l2"]), ">=", 1),
            Check("tokens computed again, beyond all of them",
                  int(rows[1]["tokens computed, second round"])
                  - setting.nodes * _PROMPT_TOKENS, "<=", 0),
        ),
    )  # fmt: skip


SCENARIO = Scenario(
    name="cache-pressure",
    claim="With all tiers too small answers are the same, and at worst computed again.",
    rows=(61,),
    world="processes",
    usual=Setting(24),
    quick=Setting(8),
    least=4,
    run=run,
)
