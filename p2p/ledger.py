"""What is known of each peer: what it gave and took, how fast, how often it lied. Pure state.

The daemon keeps one, feeds it, and writes its snapshot down. Times are seconds since 1970.
A peer that timed out or lost its connection is not held to have lied: only bytes that are
not the named ones, and broken rules, count as bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from p2p.host import PeerId

Trust = Literal["own", "known", "stranger"]

MAX_PEERS = 5_000
MAX_BAD = 3  # then it is banned (SECURITY F16)
MAX_MODELS = 8  # that are remembered of a peer
RELIED_S = 600.0  # on a speed: then a link that was slow is tried again
_NEW_SHARE = 0.3  # of a new measurement


@dataclass(slots=True)
class PeerEntry:
    """One peer. Bytes and blocks `in` came from it, `out` went to it.

    Attributes:
        speed, rtt_s: bytes/s and seconds, smoothed; None until measured.
        measured_s: when its speed was, last.
        models: hex model ids of which it gave something, the latest last.
        neuron: which it signs as, hex, as it proved; "" where it did not.
    """

    trust: Trust = "stranger"
    bytes_in: int = 0
    bytes_out: int = 0
    blocks_in: int = 0
    blocks_out: int = 0
    speed: float | None = None
    rtt_s: float | None = None
    num_bad: int = 0
    is_banned: bool = False
    seen_s: float = 0.0
    models: list[str] = field(default_factory=list)
    neuron: str = ""
    measured_s: float = 0.0


class Ledger:
    """At most so many peers: strangers that were not seen for longest are forgotten first.

    To be seen costs a stranger one connection, so that pushes out nobody who gave something.
    """

    def __init__(self, max_peers: int = MAX_PEERS) -> None:
        self._max = max_peers
        self._entries: dict[PeerId, PeerEntry] = {}  # least lately seen first

    def entry(self, peer: PeerId) -> PeerEntry | None:
        """What is known of a peer; to be read only."""
        return self._entries.get(peer)

    def entries(self) -> list[tuple[PeerId, PeerEntry]]:
        """All of them, the last seen first."""
        return list(self._entries.items())[::-1]

    def is_banned(self, peer: PeerId) -> bool:
        entry = self._entries.get(peer)
        return entry is not None and entry.is_banned

    def is_proven(self, peer: PeerId) -> bool:
        """Whether it gave blocks that hold, or the user named it."""
        entry = self._entries.get(peer)
        if entry is None or entry.is_banned:
            return False
        return entry.trust != "stranger" or entry.blocks_in > 0

    def seen(self, peer: PeerId, now_s: float) -> None:
        """It is there."""
        self._see(peer, now_s)

    def gave(
        self, peer: PeerId, model_id: bytes, blocks: int, size_bytes: int, now_s: float
    ) -> None:
        """Blocks that hold came from it."""
        entry = self._see(peer, now_s)
        entry.blocks_in += blocks
        entry.bytes_in += size_bytes
        model = model_id.hex()
        entry.models = [*(each for each in entry.models if each != model), model][-MAX_MODELS:]

    def took(self, peer: PeerId, blocks: int, size_bytes: int, now_s: float) -> None:
        """Blocks went to it."""
        entry = self._see(peer, now_s)
        entry.blocks_out += blocks
        entry.bytes_out += size_bytes

    def measured(
        self, peer: PeerId, now_s: float, *, speed: float | None = None, rtt_s: float | None = None
    ) -> None:
        """How fast it is."""
        entry = self._see(peer, now_s)
        if speed is not None:
            is_old = self.speed_of(peer, now_s) is None
            entry.speed = speed if is_old else _smoothed(entry.speed, speed)
            entry.measured_s = now_s
        entry.rtt_s = _smoothed(entry.rtt_s, rtt_s)

    def speed_of(self, peer: PeerId, now_s: float) -> float | None:
        """Bytes/s, if it was measured lately."""
        entry = self._entries.get(peer)
        if entry is None or abs(now_s - entry.measured_s) > RELIED_S:
            return None
        return entry.speed

    def lied(self, peer: PeerId, now_s: float) -> bool:
        """It sent what it must not. True where that bans it: then the host is to be told."""
        entry = self._see(peer, now_s)
        entry.num_bad += 1
        if entry.num_bad < MAX_BAD or entry.is_banned:
            return False
        entry.is_banned = True
        return True

    def ban(self, peer: PeerId, is_banned: bool, now_s: float) -> None:
        """As the user says; what it did is forgotten with the ban."""
        entry = self._see(peer, now_s)
        entry.is_banned = is_banned
        entry.num_bad = entry.num_bad if is_banned else 0

    def trust(self, peer: PeerId, trust: Trust, now_s: float) -> None:
        """Whose it is."""
        self._see(peer, now_s).trust = trust

    def signs_as(self, peer: PeerId, neuron: bytes, now_s: float) -> None:
        """It proved which neuron it signs as."""
        self._see(peer, now_s).neuron = neuron.hex()

    def forget(self, peer: PeerId) -> None:
        """Know nothing of it. Unknown is no matter."""
        self._entries.pop(peer, None)

    def peers_of(self, model_id: bytes) -> list[PeerId]:
        """Who gave blocks of a model before, the best first."""
        model = model_id.hex()
        return self.ranked(peer for peer, entry in self._entries.items() if model in entry.models)

    def ranked(self, peers: Iterable[PeerId]) -> list[PeerId]:
        """The best first, without those that are banned: own, known, strangers; then by speed."""
        usable = [peer for peer in peers if not self.is_banned(peer)]
        return sorted(usable, key=self._rank)

    def _rank(self, peer: PeerId) -> tuple[int, int, float, float]:
        entry = self._entries.get(peer, PeerEntry())
        trust = get_args(Trust).index(entry.trust)
        return trust, entry.num_bad, -(entry.speed or 0.0), -entry.seen_s

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Plain values, for a file."""
        return {peer: asdict(entry) for peer, entry in self._entries.items()}

    def restore(self, snapshot: Mapping[str, Mapping[str, Any]]) -> None:
        """What `snapshot` gave, in place of what is known. Raises: ValueError, of another shape."""
        known = {each.name for each in fields(PeerEntry)}
        entries: dict[PeerId, PeerEntry] = {}
        for peer, values in snapshot.items():
            if set(values) != known or values["trust"] not in get_args(Trust):
                raise ValueError(f"not an entry of a ledger: {values}")
            entries[PeerId(peer)] = PeerEntry(**{**values, "models": list(values["models"])})
        self._entries = entries
        self._make_room()

    def _see(self, peer: PeerId, now_s: float) -> PeerEntry:
        entry = self._entries.pop(peer, None) or PeerEntry()
        entry.seen_s = now_s
        self._entries[peer] = entry
        self._make_room(peer)
        return entry

    def _make_room(self, spared: PeerId | None = None) -> None:
        while len(self._entries) > self._max:
            self._entries.pop(self._least(spared))

    def _least(self, spared: PeerId | None) -> PeerId:
        """A stranger, if there is one: first one that is neither banned nor proven, then one
        that is banned; then, whoever is longest ago.

        So bans, which cost a stranger three frames, push out none whom the user named.
        """
        banned = proven = None
        for peer, entry in self._entries.items():
            if entry.trust != "stranger" or peer == spared:
                continue
            if entry.is_banned:
                banned = banned or peer
            elif entry.blocks_in:
                proven = proven or peer
            else:
                return peer
        return banned or proven or next(iter(self._entries))


def _smoothed(old: float | None, new: float | None) -> float | None:
    if new is None or old is None:
        return old if new is None else new
    return old + _NEW_SHARE * (new - old)
