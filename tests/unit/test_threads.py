"""Forwards of few rows run on one thread, and nothing else notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from glia.engine.load import load_model
from glia.engine.threads import fitting_threads
from glia.graph.profile import KvScheme
from tests.model_parts import run, save_tiny, seeded_tokens, settings

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("num_rows", "weight_bytes", "expected"),
    [(1, MIB, 1), (16, MIB, 1), (17, MIB, 2), (1, 8 * MIB, 2), (1, 8 * MIB - 1, 1)],
)
def test_few_rows_of_small_layers_run_on_one_thread(
    num_rows: int, weight_bytes: int, expected: int
) -> None:
    with fitting_threads(num_rows, weight_bytes):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


def test_a_step_that_fails_gives_the_threads_back() -> None:
    with pytest.raises(ValueError, match="a mistake"), fitting_threads(1, MIB):
        raise ValueError("a mistake")
    assert torch.get_num_threads() == 2


@pytest.mark.spec(12)
def test_steps_on_one_thread_have_the_bytes_of_prefill_on_two(tmp_path: Path) -> None:
    path = save_tiny(tmp_path, "llama", intermediate_size=1024)
    model = load_model(path, settings(dtype="bfloat16", scheme=KvScheme.BF16))
    seen: list[int] = []
    forward = model._forward

    class Watched:
        is_packed = forward.is_packed

        def __call__(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return forward(tokens, wanted)

    model._forward = Watched()
    tokens = seeded_tokens(150, 96)
    whole = run(model, tokens)
    decoded = run(model, tokens, [120, *[1] * 30])
    assert seen == [2, 2, *[1] * 30]
    assert decoded.same_raw(whole)
    assert torch.equal(decoded.logits[-1], whole.logits[-1])
