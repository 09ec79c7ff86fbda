"""dispatch: computing alone, in one process: our forward against stock transformers, in turn.

No daemon, no sealing, no storing: what R5 and R6 could be at best. bf16, raw K and V
written as the engine has them written, prefill in pieces of 512. dispatch is one token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from transformers import DynamicCache, StaticCache

from glia.engine.load import LoadSettings, load_model
from glia.engine.loaded import LoadedModel
from glia.graph.profile import KvScheme
from glia.kv.compute import Piece
from simulations.bench.report import Row
from simulations.bench.setting import MODEL_DIR
from simulations.bench.stock import CacheKind, Stock

_PIECE = 512
_RESTORED = 4096
_STEPS = 24
_AT_ONCE = 4
_GIB = 1 << 30


def run(quick: bool) -> tuple[list[Row], dict[str, Any]]:
    """Medians in ms and ratios (above 1: we are faster), by context length."""
    stock = Stock(MODEL_DIR, torch.bfloat16)
    ours = _Ours(load_model(MODEL_DIR, LoadSettings("bfloat16", 16, KvScheme.BF16, _GIB)))
    figures: dict[str, Any] = {}
    lengths, steps = ((512,), 9) if quick else ((512, 2048, 4096), _STEPS)
    for length in lengths:
        _prefill(figures, ours, stock, length, 3 if quick else 5)
        _decode(figures, ours, stock, length, steps)
    if not quick:
        _together(figures, ours, steps)
        _restore(figures, ours, 9)
    figures["threads"] = torch.get_num_threads()
    worst = min(lengths, key=lambda length: figures[f"decode at {length}, ratio"])
    found = {
        side: figures[f"decode at {worst}: {side}, ms"] for side in ("ours", "static", "dynamic")
    }
    better = min(found["static"], found["dynamic"])
    row = Row("dispatch", better / found["ours"], f"{found['ours']:.1f} ms", f"{better:.1f} ms")
    return [row], figures


def some_tokens(count: int, vocab_size: int) -> list[int]:
    """Token ids spread over the vocabulary."""
    return [(1 + index * 7919) % vocab_size for index in range(count)]


class _Ours:
    """A loaded model with one sequence in slots that follow each other."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self._table = range(model.num_slots)
        self._raw = model.new_raw(_PIECE)

    def forward(self, tokens: Sequence[int], position: int) -> None:
        num_slots = -(-(position + len(tokens)) // self.model.block_size)
        raw = [rows[: len(tokens)] for rows in self._raw]
        self.model.forward([Piece(tokens, position, self._table[:num_slots], raw)])

    def prefill(self, tokens: Sequence[int]) -> None:
        for at in range(0, len(tokens), _PIECE):
            self.forward(tokens[at : at + _PIECE], at)


class _StockDecoding:
    """Stock transformers after a prefill, one step at a time."""

    def __init__(self, stock: Stock, tokens: Sequence[int], kind: CacheKind) -> None:
        self._model, self._at = stock.model, len(tokens)
        self._cache = DynamicCache()
        if kind == "static":
            size = len(tokens) + _STEPS + 8
            self._cache = StaticCache(config=stock.model.config, max_cache_len=size)
        self._forward(tokens, range(len(tokens)))

    @torch.inference_mode()
    def _forward(self, tokens: Sequence[int], positions: Sequence[int]) -> None:
        self._model(
            torch.tensor([tokens]),
            position_ids=torch.tensor([list(positions)]),
            use_cache=True,
            cache=self._cache,
            logits_to_keep=1,
        )

    def step(self) -> None:
        self._forward([1 + self._at], [self._at])
        self._at += 1


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _prefill(figures: dict[str, Any], ours: _Ours, stock: Stock, length: int, reps: int) -> None:
    tokens = some_tokens(length, ours.model.vocab_size)
    ours.prefill(tokens[:_PIECE])
    pairs = [(_seconds(lambda: ours.prefill(tokens)), stock.prefill_s(tokens)) for _ in range(reps)]
    figures[f"prefill {length}, ratio"] = median(theirs / mine for mine, theirs in pairs)
    figures[f"prefill {length}: ours, ms"] = median(mine for mine, _ in pairs) * 1000
    figures[f"prefill {length}: stock, ms"] = median(theirs for _, theirs in pairs) * 1000


def _decode(figures: dict[str, Any], ours: _Ours, stock: Stock, context: int, steps: int) -> None:
    tokens = some_tokens(context, ours.model.vocab_size)
    ours.prefill(tokens)
    static = _StockDecoding(stock, tokens, "static")
    dynamic = _StockDecoding(stock, tokens, "dynamic")
    times: dict[str, list[float]] = {"ours": [], "static": [], "dynamic": []}
    for step in range(steps):
        at = context + step
        times["ours"].append(_seconds(lambda at=at: ours.forward([at], at)))  # type: ignore[misc]
        times["static"].append(_seconds(static.step))
        times["dynamic"].append(_seconds(dynamic.step))
    medians = {name: median(found) * 1000 for name, found in times.items()}
    better = min(medians["static"], medians["dynamic"])
    figures[f"decode at {context}, ratio"] = better / medians["ours"]
    for name, value in medians.items():
        figures[f"decode at {context}: {name}, ms"] = value


def _together(figures: dict[str, Any], ours: _Ours, steps: int) -> None:
    """One step of several sequences in one forward, against one forward each."""
    model, context = ours.model, 512
    tokens = some_tokens(context + steps, model.vocab_size)
    num_slots = -(-(context + steps) // model.block_size)
    tables = [range(n * num_slots, (n + 1) * num_slots) for n in range(_AT_ONCE)]
    raws = [model.new_raw(context) for _ in tables]
    for table, raw in zip(tables, raws, strict=True):
        model.forward([Piece(tokens[:context], 0, table, raw)])
    apart, together = [], []
    for at in range(context, context + steps):
        rows = [[layer[:1] for layer in raw] for raw in raws]
        pieces = [
            Piece(tokens[at : at + 1], at, table, raw)
            for table, raw in zip(tables, rows, strict=True)
        ]
        apart.append(_seconds(lambda: [model.forward([piece]) for piece in pieces]))  # noqa: B023
        together.append(_seconds(lambda: model.forward(pieces)))  # noqa: B023
    figures[f"{_AT_ONCE} sequences at {context}, ratio"] = median(apart) / median(together)
    figures[f"{_AT_ONCE} sequences at {context}: together, ms"] = median(together) * 1000


def _restore(figures: dict[str, Any], ours: _Ours, reps: int) -> None:
    """Stored windows into the pool, as they stand in L1: window after window."""
    model = ours.model
    num_windows = _RESTORED // model.block_size
    shape = model.shapes[0]
    stored = torch.zeros(
        num_windows, len(model.shapes), model.block_size, shape.kv_heads, 2 * shape.head_dim
    ).to(model.storage)
    payloads = [stored[:, layer] for layer in range(len(model.shapes))]
    slots = range(num_windows)
    restore, forward = [], []
    for _ in range(reps):
        restore.append(_seconds(lambda: model.restore(payloads, 0, slots)))
        forward.append(_seconds(lambda: ours.forward([1], _RESTORED)))
    figures[f"restore {_RESTORED}, ms"] = median(restore) * 1000
    figures[f"one token at {_RESTORED}, ms"] = median(forward) * 1000
