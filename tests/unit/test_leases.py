"""Who has leased what."""

from __future__ import annotations

from daemon.leases import Held, Leases
from tests.builders import make_chain

ONE, TWO, THREE = make_chain(3).window_ids


def test_leases_are_those_of_connections_that_last() -> None:
    leases = Leases()
    first: Held = {1: (ONE, TWO)}
    second: Held = {}
    leases.add("pid 1", first)
    leases.add("pid 2", second)
    second[1] = (TWO,)  # it goes on to change them itself
    assert leases.holders_of([TWO]) == ["pid 1", "pid 2"]
    assert leases.holders_of([ONE]) == ["pid 1"]
    assert leases.holders_of([THREE]) == []
    for _ in range(2):
        leases.discard(first)  # whatever it has still
        assert leases.holders_of([ONE, TWO]) == ["pid 2"]
