"""R1, R2, R4, R5, R6, R11: whole requests through gliad and an engine, against stock."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec import to_builtins

from glia.local import messages as m
from simulations.bench.node import Node, resident_bytes
from simulations.bench.report import Row
from simulations.bench.setting import MODEL
from simulations.bench.stock import CacheKind, Stock

WARM_TOKENS = 4097
PREFILL_LENGTHS = (512, 2048, 4096)
DECODE_CONTEXTS = (512, 2048, 4096)
NUM_DECODED = 48
NUM_AGENTS, SYSTEM_TOKENS, SUFFIX_TOKENS = 8, 2048, 64


def prompts(text_tokens: Sequence[int], length: int, num: int, seed: int) -> list[list[int]]:
    """`num` prompts of `length` tokens that differ from their first token on."""
    rng = random.Random(seed)
    found = []
    for _ in range(num):
        start = rng.randrange(len(text_tokens))
        turned = [*text_tokens[start:], *text_tokens[:start]]
        repeated = turned * (length // len(turned) + 1)
        found.append([rng.randrange(1000, 40000), *repeated[: length - 1]])
    return found


def warm_starts(node: Node, text: Sequence[int], reps: int) -> tuple[list[Row], dict[str, Any]]:
    """R1, R2, R4: each prompt cold, then from L0, L1 and L2."""
    runs: dict[str, list[m.Generated]] = {"cold": [], "L0": [], "L1": [], "L2": []}
    warm = WARM_TOKENS - 1
    for prompt in prompts(text, WARM_TOKENS, reps, seed=1):
        runs["cold"].append(_expect(node.run(MODEL, prompt), computed=WARM_TOKENS))
        runs["L0"].append(_expect(node.run(MODEL, prompt), l0=warm))
        node.evict("l0")
        runs["L1"].append(_expect(node.run(MODEL, prompt), l1=warm))
        node.evict("l0", "l1")
        node.drop_page_cache()
        runs["L2"].append(_expect(node.run(MODEL, prompt), l2=warm))
    parts = _by_part(runs)
    first = {name: median(run.ttft_ms for run in found) for name, found in runs.items()}
    forward = median(run.timings_ms["prefill"] for run in runs["L0"])
    moved = _memcpy_ms(warm * _bytes_per_token(node))
    parts["memcpy of the same bytes, ms"] = moved
    rows = [
        Row("R1", first["cold"] / first["L1"], _ms(first["L1"]), _ms(first["cold"])),
        Row("R2", first["cold"] / first["L2"], _ms(first["L2"]), _ms(first["cold"])),
        Row("R4", first["L1"] / (forward + moved), _ms(first["L1"]), _ms(forward + moved)),
    ]
    return rows, parts


def prefill(
    node: Node, stock: Stock, text: Sequence[int], reps: int, lengths: Sequence[int]
) -> tuple[Row, dict[str, Any]]:
    """R6: whole request (computed, sealed, durable) against a stock prefill, in turn."""
    parts: dict[str, Any] = {}
    worst: Row | None = None
    for length in lengths:
        ours, other = [], []
        for prompt in prompts(text, length, reps, seed=length):
            started = time.perf_counter()
            run = _expect(node.run(MODEL, prompt), computed=length)
            ours.append(time.perf_counter() - started)
            parts[f"{length} tokens: seal and flush after the first token, ms"] = (
                ours[-1] * 1000 - run.ttft_ms
            )
            other.append(stock.prefill_s(prompt))
        row = Row("R6", median(other) / median(ours), _s(median(ours)), _s(median(other)))
        parts[f"{length} tokens: stock / ours"] = row.value
        worst = row if worst is None or row.value < worst.value else worst
    if worst is None:
        raise ValueError("no lengths")
    return worst, parts


def decode(
    node: Node, stock: Stock, text: Sequence[int], reps: int, contexts: Sequence[int]
) -> tuple[Row, dict[str, Any]]:
    """R5: milliseconds a token after the first, against both stock caches, in turn."""
    parts: dict[str, Any] = {}
    worst: Row | None = None
    kinds: tuple[CacheKind, ...] = ("dynamic", "static")
    for context in contexts:
        ours: list[float] = []
        other: dict[CacheKind, list[float]] = {kind: [] for kind in kinds}
        for prompt in prompts(text, context, reps, seed=context + 1):
            run = node.run(MODEL, prompt, max_tokens=NUM_DECODED)
            ours.append(run.timings_ms["decode"] / (len(run.tokens) - 1))
            for kind in kinds:
                steps = stock.decode_s(prompt, NUM_DECODED - 1, kind)
                other[kind].append(sum(steps) / len(steps) * 1000)
        best = min(median(found) for found in other.values())
        row = Row("R5", best / median(ours), _ms(median(ours)), _ms(best))
        parts[f"context {context}: ours, ms a token"] = median(ours)
        for kind in kinds:
            parts[f"context {context}: {kind} cache, ms a token"] = median(other[kind])
        parts[f"context {context}: ratio"] = row.value
        worst = row if worst is None or row.value < worst.value else worst
    if worst is None:
        raise ValueError("no contexts")
    return worst, parts


def agents(node: Node, text: Sequence[int]) -> tuple[Row, dict[str, Any]]:
    """R11: eight conversations that start at once behind one system prompt."""
    (system,) = prompts(text, SYSTEM_TOKENS, 1, seed=11)
    suffixes = prompts(text, SUFFIX_TOKENS, NUM_AGENTS, seed=12)
    with ThreadPoolExecutor(NUM_AGENTS) as threads:
        runs = list(threads.map(lambda suffix: node.run(MODEL, system + suffix), suffixes))
    computed = sum(run.usage.computed for run in runs)
    alone = NUM_AGENTS * (SYSTEM_TOKENS + SUFFIX_TOKENS)
    parts = {"tokens computed by each": ", ".join(str(run.usage.computed) for run in runs)}
    return Row("R11", computed, f"{computed:,}", f"{alone:,} without sharing"), parts


def memory(node: Node) -> dict[str, Any]:
    """Resident memory of gliad, without shared memory, and of its tiers."""
    with node.client() as client:
        status = client.status()
    parts: dict[str, Any] = {"gliad, MiB without shared memory": resident_bytes(status.pid) / 2**20}
    for name, tier in sorted(status.tiers.items()):
        parts[f"{name} used / cap, MiB"] = f"{tier.used_bytes >> 20} / {tier.cap_bytes >> 20}"
        if tier.used_bytes > tier.cap_bytes:
            raise RuntimeError(f"{name} is above its cap: {tier}")
    return parts


def _expect(run: m.Generated, **tokens: int) -> m.Generated:
    """The run, if its prompt came from where the measurement needs it."""
    found = {"computed": run.usage.computed, **to_builtins(run.usage.cached)}
    if any(found[name] != num for name, num in tokens.items()):
        raise RuntimeError(f"wanted {tokens}, but the prompt came from {found}")
    return run


def _by_part(runs: dict[str, list[m.Generated]]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for name, found in runs.items():
        parts[f"{name}: first token, ms"] = median(run.ttft_ms for run in found)
        for part in found[0].timings_ms:
            parts[f"  {name}: {part}, ms"] = median(run.timings_ms[part] for run in found)
    return parts


def _bytes_per_token(node: Node) -> int:
    with node.client() as client:
        (model,) = (model for model in client.models() if model.name == MODEL)
    config = json.loads((Path(model.files_dir or model.source) / "config.json").read_text())
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    values = config["num_hidden_layers"] * config["num_key_value_heads"] * 2 * head_dim
    return int(values) * 2


def _memcpy_ms(size_bytes: int) -> float:
    """Median of copying that many bytes into memory that is there already."""
    source, target = np.ones(size_bytes, np.uint8), np.ones(size_bytes, np.uint8)
    times = []
    for _ in range(9):
        started = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - started)
    return median(times) * 1000


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"


def _s(value: float) -> str:
    return f"{value:,.2f} s"
