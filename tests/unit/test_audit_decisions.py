"""Which windows are computed again, and what is known of neurons: as tables."""

from __future__ import annotations

import random

import pytest

from p2p.auditing import detection, drawn, is_waited_for, rate_of, used_before
from p2p.ledger import Trust
from p2p.neurons import NeuronEntry, Neurons, Word

A, B, C = (bytes([n]) * 32 for n in range(3))


@pytest.mark.parametrize(
    ("trust", "num_clean", "rate"),
    [
        ("own", 0, 0.005),
        ("known", 0, 0.05),
        ("known", 10_000, 0.05),
        ("stranger", 0, 1.0),
        ("stranger", 31, 1.0),
        ("stranger", 32, 0.25),
        ("stranger", 499, 0.25),
        ("stranger", 500, 0.05),
    ],
)
def test_the_share_is_that_of_the_class(trust: Trust, num_clean: int, rate: float) -> None:
    assert rate_of(trust, num_clean) == rate


def test_much_other_arithmetic_lowers_a_class() -> None:
    assert rate_of("known", 600, is_lowered=True) == 0.25
    assert rate_of("own", 600, is_lowered=True) == 0.005


def test_of_a_stranger_the_first_are_all_drawn_and_waited_for() -> None:
    flags = drawn("stranger", 0, 64, lambda: 0.999)
    assert flags == [True] * 32 + [False] * 32
    assert drawn("stranger", 30, 4, lambda: 0.999) == [True, True, False, False]
    assert is_waited_for("stranger", 0)
    assert not is_waited_for("stranger", 500)
    assert not is_waited_for("known", 0)


def test_draws_are_of_the_rate() -> None:
    source = random.Random(5).random
    num = sum(drawn("known", 0, 20_000, source))
    assert abs(num - 1000) < 4 * (20_000 * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(("rate", "num_bad", "chance"), [(0.05, 16, 0.56), (0.25, 4, 0.68)])
def test_detection_is_as_the_table_has_it(rate: float, num_bad: int, chance: float) -> None:
    assert detection(rate, num_bad) == pytest.approx(chance, abs=0.005)


@pytest.mark.fault("F31")
@pytest.mark.parametrize(("num_clean", "rate"), [(500, 0.05), (100, 0.25)])
@pytest.mark.parametrize("num_bad", [1, 4, 16])
def test_a_poisoned_chain_is_found_as_often_as_the_mathematics_says(
    num_clean: int, rate: float, num_bad: int
) -> None:
    """512 windows, some of them false, 2,000 times; known for 500 clean ones, and before."""
    source, where = random.Random(f"{rate} {num_bad}"), random.Random(num_bad)
    num_found = 0
    for _ in range(2_000):
        bad = where.sample(range(512), num_bad)
        flags = drawn("stranger", num_clean, 512, source.random)
        num_found += any(flags[at] for at in bad)
    expected = detection(rate, num_bad)
    spread = (2_000 * expected * (1 - expected)) ** 0.5
    assert abs(num_found - 2_000 * expected) <= 3 * spread


def test_a_liar_has_so_many_used_before_the_first_is_found() -> None:
    assert used_before(0.05) == pytest.approx(19)
    assert used_before(1.0) == 0.0


def test_who_was_caught_is_believed_in_nothing_until_the_user_says_otherwise() -> None:
    neurons = Neurons()
    neurons.checked(A, 40, 0)
    for _ in range(40):
        neurons.audited(A, "clean")
    neurons.audited(A, "false")
    neurons.caught(A, "layer 7", 12.0)
    assert neurons.is_never(A)
    assert neurons.entry(A) == NeuronEntry("never", 12.0, "layer 7", 40, 0, 41, 0)
    again = Neurons()
    again.restore(neurons.snapshot())
    assert again.is_never(A)
    again.say(A, "known")
    assert not again.is_never(A)
    assert again.entry(A).caught_s == 12.0
    again.say(A, "default")
    assert again.entry(A) == NeuronEntry()


def test_three_of_other_arithmetic_among_a_hundred_lower_it() -> None:
    neurons = Neurons()
    for at in range(103):
        assert not neurons.entry(A).is_lowered
        neurons.audited(A, "other" if at in (0, 60) else "clean")
    neurons.audited(A, "other")  # the first is 103 ago
    assert not neurons.entry(A).is_lowered
    neurons.audited(A, "other")
    assert neurons.entry(A).is_lowered
    for _ in range(100):
        neurons.audited(A, "clean")
    assert not neurons.entry(A).is_lowered


def test_whom_nobody_said_anything_of_is_forgotten_first() -> None:
    neurons = Neurons(3)
    neurons.caught(A, "why", 1.0)
    neurons.checked(B, 1, 0)
    neurons.say(C, "known")
    neurons.checked(b"\7" * 32, 1, 0)
    assert {neuron for neuron, _ in neurons.items()} == {A, C, b"\7" * 32}
    neurons.say(b"\7" * 32, "own")
    neurons.say(b"\x08" * 32, "known")
    assert A not in {neuron for neuron, _ in neurons.items()}


@pytest.mark.parametrize("word", ["friend", "", "banned"])
def test_a_file_with_another_word_is_none(word: Word) -> None:
    snapshot = Neurons().snapshot() | {A.hex(): {**_values(), "word": word}}
    with pytest.raises(ValueError, match="not an entry"):
        Neurons().restore(snapshot)


def _values() -> dict[str, object]:
    neurons = Neurons()
    neurons.say(A, "known")
    return neurons.snapshot()[A.hex()]
