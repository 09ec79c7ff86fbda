"""What an engine is expected to need: copies of its weights, and what it has not touched yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import trio

from daemon.config import Config
from daemon.engine_need import Needs, budget_bytes, wide_bytes
from daemon.models_registry import KnownModel
from glia.graph.manifest import Manifest
from tests.model_parts import save_tiny, tiny_stock

MIB = 1 << 20
CONFIG = Config(Path("data"), Path("models"))
RUNTIME = 512 * MIB
LATER = CONFIG.l0.size_bytes + CONFIG.l1.staging_bytes


def with_budget(num_bytes: int) -> Config:
    return replace(CONFIG, engine=replace(CONFIG.engine, memory_bytes=num_bytes))


def expected(config: Config, path: Path, dtype: str) -> int:
    model = KnownModel("tiny", path / "tiny.model", "", Manifest(str(path)))
    return trio.run(Needs(config).expected, model, dtype)


def test_weights_are_counted_as_they_are_computed_with(tmp_path: Path) -> None:
    num = sum(p.numel() for p in tiny_stock("llama").parameters())
    path = save_tiny(tmp_path, "llama")
    assert expected(CONFIG, path, "bfloat16") == RUNTIME + 3 * 2 * num + LATER
    assert expected(CONFIG, path, "float32") == RUNTIME + 3 * 4 * num + LATER


def test_in_float64_they_are_counted_twice_where_that_fits(tmp_path: Path) -> None:
    num = sum(p.numel() for p in tiny_stock("llama").parameters())
    path = save_tiny(tmp_path, "llama")  # stored in f32
    enough = with_budget(RUNTIME + LATER + 8 * num)
    assert wide_bytes(enough) == 8 * num
    assert expected(enough, path, "float64") == RUNTIME + 12 * num + LATER
    less = with_budget(RUNTIME + LATER + 8 * num - 1)
    assert expected(less, path, "float64") == RUNTIME + 4 * num + LATER
    assert wide_bytes(with_budget(1)) == 0
    assert budget_bytes(with_budget(1)) == 1
    assert budget_bytes(CONFIG) > RUNTIME
