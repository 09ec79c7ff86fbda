"""What a peer sends, cut into particles wherever the reads end."""

from __future__ import annotations

import random

import pytest

from glia.errors import RemoteProtocolError
from p2p.incoming import Incoming

PARTICLES = [b"abc", b"", b"x", b"", bytes(range(250)), b"yz"]
WIRE = b"".join(len(each).to_bytes(4, "big") + each for each in PARTICLES)


class Owed:
    """A peer that owes those particles, and what came of it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.incoming = Incoming(self.expects, self.take)

    def expects(self) -> int | None:
        """An absent one would have had seven bytes."""
        left = PARTICLES[len(self.taken) :]
        return (len(left[0]) or 7) if left else None

    def take(self, particle: memoryview) -> None:
        self.taken.append(bytes(particle))


@pytest.mark.parametrize("seed", range(50))
def test_reads_end_anywhere(seed: int) -> None:
    rng, owed, at = random.Random(seed), Owed(), 0
    while at < len(WIRE):
        num = rng.choice((1, 2, 3, 5, 40, 1000))
        owed.incoming.took(WIRE[at : at + num])
        at += num
    assert owed.taken == PARTICLES
    assert owed.incoming.is_between


@pytest.mark.parametrize("num", range(1, len(WIRE)))
def test_what_came_in_part_is_known(num: int) -> None:
    owed = Owed()
    owed.incoming.took(WIRE[:num])
    whole = sum(map(len, owed.taken)) + 4 * len(owed.taken)
    assert owed.taken == PARTICLES[: len(owed.taken)]
    assert owed.incoming.is_between is (whole == num)


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    "wire", [b"\0\0\0\2ab", b"\0\0\0\4abcd", b"\xff\xff\xff\xff", WIRE + b"\0\0\0\0"]
)
def test_a_length_is_judged_before_anything_is_kept(wire: bytes, size: int) -> None:
    owed = Owed()
    with pytest.raises(RemoteProtocolError):  # noqa: PT012
        for at in range(0, len(wire), size):
            owed.incoming.took(wire[at : at + size])
    assert owed.taken in ([], PARTICLES)
