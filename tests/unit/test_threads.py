"""Forwards of few rows run on one thread, and nothing else notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from glia.engine.load import load_model
from glia.engine.threads import LayerThreads, fitting_threads
from glia.graph.profile import KvScheme
from tests.model_parts import payloads, run, same_bytes, save_tiny, seeded_tokens, settings

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


def test_every_layer_is_worked_on_once_and_two_parts_at_once() -> None:
    done: list[tuple[int, int]] = []
    both = threading.Barrier(2, timeout=60)

    def work(layer: int, part: int) -> None:
        assert torch.get_num_threads() == 1
        if layer < 2:
            both.wait()
        done.append((layer, part))

    LayerThreads().run(work, 7, 5)
    assert sorted(done) == [(layer, layer % 2) for layer in range(7)]
    assert torch.get_num_threads() == 2


def test_what_a_part_raises_is_raised_once_all_have_stopped() -> None:
    done: list[int] = []
    failed = threading.Event()

    def work(layer: int, part: int) -> None:
        if part == 0:
            failed.set()
            raise ValueError("a mistake")
        assert failed.wait(60)
        done.append(layer)

    layers = LayerThreads()
    with pytest.raises(ValueError, match="a mistake"):
        layers.run(work, 8, 2)
    assert done == [1, 3, 5, 7]

    def other(layer: int, part: int) -> None:
        if part:
            raise KeyError(layer)

    with pytest.raises(KeyError):
        layers.run(other, 8, 2)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("slots", [[4, 5, 6, 7, 8, 9], [9, 3, 20, 5, 4, 12]])
def test_layers_restored_at_once_have_the_bytes_of_one_after_another(
    slots: list[int], tmp_path: Path
) -> None:
    model = load_model(save_tiny(tmp_path, "llama", num_hidden_layers=7), settings())
    tokens = seeded_tokens(96, 96)
    stored = payloads(model, run(model, tokens).raw)
    found = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        model.clear(range(model.num_slots))
        model.restore(stored, 16, slots)
        found.append([tensor.clone() for tensor in (*model._pool._keys, *model._pool._values)])
    assert any(tensor.any() for tensor in found[0])
    for other in found[1:]:
        assert all(same_bytes(a, b) for a, b in zip(found[0], other, strict=True))
