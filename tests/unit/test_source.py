"""How much a peer of a fetch may owe follows how fast it is, from the first moments on."""

from __future__ import annotations

import pytest

from glia.graph.ids import BlockId
from p2p.door import Expected
from p2p.host import PeerId
from p2p.source import MAX_CREDIT_BYTES, MIN_CREDIT_BYTES, Provides, Source, Want

SIZE = 64 * 1024


def asked(now_s: float) -> Source:
    source = Source(Provides(PeerId("peer"), 100), now_s)
    source.is_open = True
    for at in range(64):
        source.ask(Want(Expected(BlockId(bytes([at]) * 32), b"", SIZE), at, 0), now_s)
    return source


@pytest.mark.parametrize(
    ("num_bytes", "took_s", "credit_bytes"),
    [
        (4 * SIZE, 0.019, MIN_CREDIT_BYTES),  # too soon to tell
        (SIZE, 0.05, MIN_CREDIT_BYTES),  # too little
        (2 * SIZE, 0.08, MIN_CREDIT_BYTES),
        (16 * SIZE, 0.025, 160 * SIZE),
        (64 * SIZE, 0.025, MAX_CREDIT_BYTES),
    ],
)
def test_a_fast_peer_owes_more_after_a_moment(
    num_bytes: int, took_s: float, credit_bytes: int
) -> None:
    source = asked(5.0)
    assert source.credit_bytes == MIN_CREDIT_BYTES
    source.heard(num_bytes, 5.0 + took_s)
    assert source.credit_bytes == pytest.approx(credit_bytes, abs=2)


def test_after_the_first_moments_it_is_measured_for_longer_and_counts_less() -> None:
    source = asked(5.0)
    source.heard(16 * SIZE, 5.025)
    first = source.speed
    source.heard(2 * SIZE, 5.05)
    assert source.speed == first
    source.heard(2 * SIZE, 5.135)
    assert 0.7 * first < source.speed < 0.75 * first
