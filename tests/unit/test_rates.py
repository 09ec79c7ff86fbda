"""How often peers may ask: of one, of one address, and of all together."""

from __future__ import annotations

from p2p.rates import Buckets, Rate, Rates

NOW_S = 1000.0
_ANY = Rate(1e9, 1e9)
_NONE = Rate(0.0, 0.0)


def num_admitted(rates: Rates, peers: list[str], crowds: list[str], now_s: float = NOW_S) -> int:
    return sum(
        rates.admits(peer, crowd, now_s)
        for _ in range(100)
        for peer, crowd in zip(peers, crowds, strict=True)
    )


def test_a_bucket_fills_again_and_holds_no_more_than_its_burst() -> None:
    buckets = Buckets[str](Rate(2.0, 5.0))
    for at_s, num in ((0.0, 5), (1.0, 2), (100.0, 5)):
        took = 0
        while buckets.has("a", 1.0, at_s):
            buckets.take("a", 1.0, at_s)
            took += 1
        assert took == num
    assert buckets.has("b", 1.0, 100.0)


def test_what_costs_more_than_there_ever_is_takes_all() -> None:
    buckets = Buckets[str](Rate(1.0, 5.0))
    assert buckets.has("a", 50.0, 0.0)
    buckets.take("a", 50.0, 0.0)
    assert not buckets.has("a", 1.0, 0.5)
    assert buckets.has("a", 1.0, 1.0)


def test_those_that_asked_last_are_remembered() -> None:
    buckets = Buckets[int](Rate(0.0, 1.0), 10)
    for number in range(100):
        buckets.take(number, 1.0, 0.0)
        buckets.take(0, 0.0, 0.0)
    assert len(buckets) == 10
    assert not buckets.has(0, 1.0, 0.0)
    assert not buckets.has(99, 1.0, 0.0)
    assert buckets.has(50, 1.0, 0.0)


def test_a_peer_and_all_behind_its_address_have_so_much() -> None:
    rates = Rates(peer=Rate(0.0, 5.0), crowd=Rate(0.0, 12.0), sure=_NONE, shared=_ANY)
    assert num_admitted(rates, ["a"], ["x"]) == 5
    assert num_admitted(rates, ["b", "c", "d"], ["x"] * 3) == 7
    assert num_admitted(rates, ["e"], ["y"]) == 5


def test_what_all_ask_for_together_takes_nobodys_sure_share() -> None:
    rates = Rates(peer=_ANY, crowd=_ANY, sure=Rate(0.0, 3.0), shared=Rate(0.0, 20.0))
    crowds = [f"x{number}" for number in range(10)]
    assert num_admitted(rates, crowds, crowds) == 10 * 3 + 20
    assert num_admitted(rates, ["honest"], ["other"]) == 3


def test_what_is_refused_costs_nothing() -> None:
    rates = Rates(peer=_ANY, crowd=Rate(1.0, 5.0), sure=_ANY, shared=_ANY)
    assert num_admitted(rates, ["a"], ["x"]) == 5
    assert not rates.admits("a", "x", NOW_S + 0.5)
    assert rates.admits("a", "x", NOW_S + 1.0)
