"""C1, C2: conversations as people have them: gone on with after a restart, and several at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from glia.local import messages as m
from glia.local import values
from simulations.bench.end_to_end import prompts
from simulations.bench.node import Node
from simulations.bench.report import Row
from simulations.bench.setting import MODEL

PAST_TOKENS, ANSWER_TOKENS, NEW_TOKENS = 4000, 16, 32
NUM_AT_ONCE, CONTEXT_TOKENS, NUM_DECODED = 4, 512, 64


def resumed(node: Node, text: Sequence[int], reps: int) -> tuple[Row, dict[str, Any]]:
    """C1: a conversation of 4,000 tokens gone on with after a restart, against one whose
    tokens are all new. Reading its log counts; the engine is loaded in both."""
    names = [f"past-{number}" for number in range(reps)]
    past = prompts(text, PAST_TOKENS, reps, seed=21)
    new = prompts(text, NEW_TOKENS, reps, seed=22)
    other = prompts(text, PAST_TOKENS + ANSWER_TOKENS + NEW_TOKENS, reps, seed=23)
    for name, tokens in zip(names, past, strict=True):
        _first_token(node, name, tokens, ANSWER_TOKENS)
    node.stop()
    node.start()
    node.run(MODEL, text[:40])
    warm, cold, cached = [], [], []
    for number, name in enumerate(names):
        node.drop_page_cache()
        first_ms, run = _first_token(node, name, new[number])
        warm.append(first_ms)
        cached.append(run.usage.cached.l2)
        first_ms, run = _first_token(node, f"other-{number}", other[number])
        cold.append(first_ms)
        if run.usage.computed != len(other[number]):
            raise RuntimeError(f"not all of a new conversation was computed: {run.usage}")
    row = Row("C1", median(cold) / median(warm), _ms(median(warm)), _ms(median(cold)))
    return row, {"tokens from L2": median(cached), "tokens before": PAST_TOKENS + ANSWER_TOKENS}


def at_once(node: Node, text: Sequence[int], reps: int) -> tuple[Row, dict[str, Any]]:
    """C2: tokens a second of four answers at once, against the same one after another."""
    asked = prompts(text, CONTEXT_TOKENS, NUM_AT_ONCE, seed=24)
    for tokens in asked:
        node.run(MODEL, tokens)
    apart, together = [], []
    for _ in range(reps):
        apart.append(_seconds(node, asked, 1))
        together.append(_seconds(node, asked, NUM_AT_ONCE))
    num_tokens = NUM_AT_ONCE * NUM_DECODED
    speeds = [num_tokens / median(found) for found in (together, apart)]
    row = Row("C2", speeds[0] / speeds[1], *(f"{speed:,.1f} tokens/s" for speed in speeds))
    return row, {"context, tokens": CONTEXT_TOKENS, "tokens of each answer": NUM_DECODED}


def _seconds(node: Node, asked: Sequence[Sequence[int]], num_threads: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(num_threads) as threads:
        list(threads.map(lambda tokens: node.run(MODEL, tokens, max_tokens=NUM_DECODED), asked))
    return time.perf_counter() - started


def _first_token(
    node: Node, name: str, tokens: Sequence[int], num_answer: int = 1
) -> tuple[float, m.Generated]:
    """Say these tokens in a conversation. Returns: ms until the first token, and the reply."""
    first_ms: float | None = None
    with node.client() as client:
        started = time.perf_counter()
        known = {about.name for about in client.conversations()}
        log = list(client.conversation(name).tokens) if name in known else []
        said = values.MessageValue("", None, len(log), len(log) + len(tokens))
        turn = values.TurnValue(name, len(log), [said])
        prompt = [*log, *tokens]
        for event in client.generate(
            MODEL, prompt, max_tokens=num_answer, ignore_eos=True, turn=turn
        ):
            if first_ms is None and isinstance(event, m.Emitted):
                first_ms = (time.perf_counter() - started) * 1000
    if not isinstance(event, m.Generated) or first_ms is None:
        raise RuntimeError(f"gliad ended with {event!r}")
    return first_ms, event


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"
