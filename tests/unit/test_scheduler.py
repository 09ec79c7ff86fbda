"""Who computes next."""

from __future__ import annotations

import pytest

from glia.engine.sampler import Sampler
from glia.engine.scheduler import Scheduler
from glia.engine.sequence import Request, Sequence, State
from glia.errors import PoolExhausted
from glia.graph.sampling import Sampling


def sequence(number: int, num_slots: int) -> Sequence:
    request = Request((1,), 1)
    return Sequence(number, request, num_slots * 16, num_slots, Sampler(Sampling()), [1])


def test_prefill_goes_one_by_one_in_order_and_decoding_goes_round() -> None:
    scheduler = Scheduler(num_slots=100, block_size=16, max_running=3)
    queue = [sequence(n, 10) for n in range(4)]
    for each in queue:
        scheduler.add(each)
    for n, each in enumerate(queue[:3]):
        assert scheduler.to_prefill() is each
        each.state = State.PREFILLING
        assert scheduler.to_prefill() is each  # until it is done
        assert scheduler.to_decode() == tuple(queue[:n])
        each.state = State.DECODING
    assert scheduler.to_prefill() is None  # three run
    scheduler.check()
    queue[1].state = State.FINISHED
    scheduler.remove(queue[1])
    assert scheduler.to_prefill() is queue[3]
    assert scheduler.waiting == ()
    assert scheduler.running == (queue[0], queue[2], queue[3])
    scheduler.check()


@pytest.mark.spec(26)
def test_what_runs_always_has_room_for_its_longest() -> None:
    scheduler = Scheduler(num_slots=25, block_size=16, max_running=9)
    big, small, other = sequence(1, 20), sequence(2, 6), sequence(3, 2)
    for each in (big, small, other):
        scheduler.add(each)
    assert scheduler.to_prefill() is big
    big.state = State.DECODING
    assert scheduler.to_prefill() is None  # the next in line waits, and nobody passes it
    with pytest.raises(PoolExhausted):
        scheduler.start_now(small)
    scheduler.remove(big)
    assert scheduler.to_prefill() is small
    scheduler.check()


def test_what_can_never_fit_is_refused_with_what_to_change() -> None:
    scheduler = Scheduler(num_slots=10, block_size=16, max_running=1)
    with pytest.raises(PoolExhausted, match="176 tokens of L0, which has room for 160") as caught:
        scheduler.add(sequence(1, 11))
    assert "1.1 times" in str(caught.value.hint)
    assert scheduler.waiting == ()


def test_one_that_waits_can_go() -> None:
    scheduler = Scheduler(num_slots=10, block_size=16, max_running=1)
    one, two = sequence(1, 5), sequence(2, 5)
    scheduler.add(one)
    scheduler.add(two)
    scheduler.remove(one)
    assert scheduler.to_prefill() is two
    scheduler.check()
