"""Who is closest to a key: the look-up of Kademlia, over paths that share no peer. Sans-IO.

Each path begins with other neighbours and never asks whom another one asked, so whoever
leads one of them astray does not lead the others (S/Kademlia). Each ends when the closest
that it heard of have answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from p2p.host import PeerId

NUM_CLOSEST = 20  # that keep a key's records
_NUM_PATHS = 2
_AT_ONCE = 3  # of one path
_MOST_AT_ONCE = 8  # where those that are asked do not answer
_MAX_CLOSER = 20  # that are taken from one answer
_MAX_KNOWN = 256  # of one path

Distance = Callable[[PeerId], int]


@dataclass(slots=True)
class _Path:
    known: list[PeerId]  # the closest first; none that failed, or that another path asked
    under_way: set[PeerId] = field(default_factory=set)
    answered: set[PeerId] = field(default_factory=set)
    num_at_once: int = _AT_ONCE


class LookUp:
    """One look-up of one key.

    Args:
        neighbours: peers that are known, the closest first.
        distance: of a peer from the key.
        num_closest: how many are wanted.
    """

    def __init__(
        self, neighbours: Sequence[PeerId], distance: Distance, num_closest: int = NUM_CLOSEST
    ) -> None:
        self._distance, self._num = distance, num_closest
        dealt = [list(neighbours[at::_NUM_PATHS]) for at in range(_NUM_PATHS)]
        self._paths = [_Path(known) for known in dealt if known]
        self._path_of: dict[PeerId, _Path] = {}

    @property
    def is_over(self) -> bool:
        """Whether nobody is asked, and nobody is to be."""
        return not any(path.under_way or self._to_ask(path) for path in self._paths)

    def widen(self, num_closest: int) -> None:
        """Want more."""
        self._num = num_closest

    def next(self) -> list[PeerId]:
        """Whom to ask for the closest that it knows; each is to be answered or failed."""
        found = []
        for path in self._paths:
            while (
                len(path.under_way) < path.num_at_once and (peer := self._to_ask(path)) is not None
            ):
                self._path_of[peer] = path
                path.under_way.add(peer)
                for other in self._paths:
                    if other is not path and peer in other.known:
                        other.known.remove(peer)
                found.append(peer)
        return found

    def answered(self, peer: PeerId, closer: Iterable[PeerId]) -> None:
        """A peer was asked, and names those closest to the key that it knows."""
        path = self._path_of[peer]
        path.under_way.discard(peer)
        path.answered.add(peer)
        path.num_at_once = max(_AT_ONCE, path.num_at_once - 1)
        new = [other for other in list(closer)[:_MAX_CLOSER] if other not in self._path_of]
        path.known = sorted({*path.known, peer, *new}, key=self._distance)[:_MAX_KNOWN]

    def failed(self, peer: PeerId) -> None:
        """A peer was asked, and is not waited for any more; it may answer yet."""
        path = self._path_of[peer]
        path.under_way.discard(peer)
        path.num_at_once = min(_MOST_AT_ONCE, path.num_at_once + 1)
        if peer in path.known:
            path.known.remove(peer)

    def closest(self) -> list[PeerId]:
        """Of those that answered, the closest first."""
        found = [peer for path in self._paths for peer in path.answered]
        return sorted(found, key=self._distance)[: self._num]

    def _to_ask(self, path: _Path) -> PeerId | None:
        """Of those that this path's end is to be made of, the first that was not asked."""
        share = -(-self._num // len(self._paths))
        return next((peer for peer in path.known[:share] if peer not in self._path_of), None)
