"""Choosing the next token."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from glia.engine.sampler import Sampler
from glia.graph.sampling import Sampling

LOGITS = torch.tensor([1.0, 3.0, 2.0, 3.0, -1.0])


def draws(count: int, **how: float) -> list[int]:
    sampler = Sampler(Sampling(**how))  # type: ignore[arg-type]
    return [sampler.choose(LOGITS) for _ in range(count)]


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert draws(3) == [1, 1, 1]
    assert Sampler(Sampling()).choose(torch.zeros(49152)) == 0
    assert Sampler(Sampling(seed=9)).choose(torch.full((5,), -3.0)) == 0


def test_a_seed_makes_draws_repeatable() -> None:
    one = draws(50, temperature=1.0, seed=7)
    assert draws(50, temperature=1.0, seed=7) == one
    assert draws(50, temperature=1.0, seed=8) != one
    assert draws(5, temperature=1.0, seed=2**63 - 1)


def test_draws_follow_the_probabilities() -> None:
    counts = Counter(draws(20_000, temperature=0.7, seed=1))
    weights = [math.exp(x / 0.7) for x in LOGITS.tolist()]
    for token, weight in enumerate(weights):
        expected = weight / sum(weights)
        assert abs(counts[token] / 20_000 - expected) < 0.012


def test_top_k_keeps_the_likeliest() -> None:
    assert set(draws(300, temperature=5.0, top_k=1, seed=1)) == {1}
    assert set(draws(300, temperature=5.0, top_k=2, seed=1)) == {1, 3}
    assert set(draws(300, temperature=5.0, top_k=100, seed=1)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.1, {1}), (0.45, {1, 3}), (0.81, {1, 2, 3}), (1.0, {0, 1, 2, 3, 4})]
)
def test_top_p_keeps_the_smallest_set_that_has_so_much(top_p: float, kept: set[int]) -> None:
    assert set(draws(4000, temperature=1.0, top_p=top_p, seed=3)) == kept


def test_a_fork_draws_on_as_its_parent_would() -> None:
    sampler = Sampler(Sampling(temperature=1.0, seed=3))
    for _ in range(4):
        sampler.choose(LOGITS)
    twin = sampler.fork()
    assert [twin.choose(LOGITS) for _ in range(9)] == [sampler.choose(LOGITS) for _ in range(9)]
    twin.choose(LOGITS)
    other = sampler.fork()
    assert sampler.choose(LOGITS) == other.choose(LOGITS)
