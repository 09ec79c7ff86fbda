"""What members may be told and given: the other door to the outside, beside daemon/egress.py.

It names nothing but what one group has published, and gives it as ciphertext: no record, no key
and no particle in the clear is in reach here.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from daemon.group_catalogue import MAX_ENCODING_BYTES, GroupCatalogue
from glia.errors import NotPermitted
from glia.graph.encrypted import Record
from glia.graph.group import GroupId
from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from glia.graph.scope import Op, Scope
from glia.store.group_index import GroupIndex
from glia.store.group_rows import GroupWindow
from p2p.group_asking import SEALED
from p2p.group_relay import Catalogue
from p2p.group_serving import Nothing
from p2p.host import PeerId
from p2p.offer import Candidate, Offer

CHECK_AGAIN_S = 10.0  # a stream may be open for long, and lists come every 45 s: a minute in all
_HOUR_S = 3600.0
_MAX_GIVEN = 4096

Check = Callable[[GroupId, bytes, PeerId], Scope]  # as Groups.check


class SealedParticles(Protocol):
    """Ciphertexts by name, as L2 has them."""

    def get_record(self, window_id: WindowId) -> Record | None:
        """Of a window that is whole."""

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """As many of the first ones as fit, verified; None where one is not here."""

    def has_block(self, block_id: BlockId) -> bool:
        """Whether the index names it."""


class GroupEgress:
    """What streams of members are answered from.

    Args:
        check: whether a capability holds. Raises: NotPermitted.
        now_s: seconds, of any clock.
        counters: group_streams, group_streams_refused.
    """

    def __init__(
        self,
        index: GroupIndex,
        particles: SealedParticles,
        check: Check,
        counters: Counter[str],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.index, self.particles = index, particles
        self._check, self._counters, self.now_s = check, counters, now_s
        self.given = _Given()

    def offer_of(self, group: GroupId, capability: bytes, peer: PeerId) -> Offer:
        """As GroupProvider asks it. Whoever may not has an offer of nothing."""
        try:
            scope = self.scope(group, capability, peer)
        except NotPermitted:
            self._counters["group_streams_refused"] += 1
            return Nothing()
        self._counters["group_streams"] += 1
        return GroupOffer(self, group, capability, peer, scope)

    def catalogue_of(self, group: GroupId, capability: bytes, peer: PeerId) -> Catalogue:
        """The same of what is told who relays."""
        return GroupCatalogue(
            self.index,
            group,
            lambda: self.scope(group, capability, peer),
            lambda name: self.particles.get_record(name) is not None,
        )

    def scope(self, group: GroupId, capability: bytes, peer: PeerId) -> Scope:
        """Raises: NotPermitted."""
        scope = self._check(group, capability, peer)
        if Op.FETCH not in scope.ops:
            raise NotPermitted("it does not allow to fetch")
        return scope


class _Given:
    """Bytes that were given of a group to a peer, in the hour that began with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hours: OrderedDict[tuple[GroupId, PeerId], tuple[float, int]] = OrderedDict()

    def num_bytes(self, group: GroupId, peer: PeerId, now_s: float) -> int:
        with self._lock:
            since_s, num_bytes = self._hours.get((group, peer), (now_s, 0))
        return num_bytes if now_s - since_s < _HOUR_S else 0

    def add(self, group: GroupId, peer: PeerId, num_bytes: int, now_s: float) -> None:
        with self._lock:
            since_s, before = self._hours.pop((group, peer), (now_s, 0))
            if now_s - since_s >= _HOUR_S:
                since_s, before = now_s, 0
            self._hours[group, peer] = since_s, before + num_bytes
            if len(self._hours) > _MAX_GIVEN:
                self._hours.popitem(last=False)


class GroupOffer:
    """The Offer (p2p/offer.py) of one stream. Its names are those of ciphertexts, its keys aliases.

    Args: scope: what its peer may have.
    """

    def __init__(
        self, egress: GroupEgress, group: GroupId, capability: bytes, peer: PeerId, scope: Scope
    ) -> None:
        self._egress, self._index, self._particles = egress, egress.index, egress.particles
        self._group, self._capability, self._peer = group, capability, peer
        self._scope: Scope | None = scope
        self._checked_s = egress.now_s()

    def match(
        self, _model_id: ModelId, _profile_id: ProfileId, keys: Sequence[tuple[int, PrefixKey]]
    ) -> list[Candidate]:
        """See Offer. Of which model they are, keys say; of which class, what is sealed."""
        if self._current() is None:
            return []
        found = self._index.match(self._group, keys, self._may)
        return [
            Candidate(
                row.num_windows,
                row.name,
                SEALED,
                tuple(self._index.chain_links(self._group, row.name)),
            )
            for row in found
        ]

    def records(self, tip: WindowId, num_windows: int, start: int) -> list[bytes]:
        """See Offer. `tip`: or the alias of a window's name."""
        if self._current() is None:
            return []
        found = self._index.records(self._group, tip, num_windows, start)
        fits = all(len(each) <= MAX_ENCODING_BYTES for each in found)
        return found if fits and self._may_all(tip) else []

    def record(self, _window_id: WindowId) -> bytes | None:
        """See Offer. Windows of groups are asked for as chains."""
        return None

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """See Offer."""
        may = self._may_have(block_ids)
        named = [name for name, is_given in zip(block_ids, may, strict=True) if is_given]
        read = iter(self._particles.read_blocks(named, into) if named else [])
        found: list[memoryview | None] = []
        for is_given in may:
            if not is_given:
                found.append(None)
                continue
            try:
                found.append(next(read))
            except StopIteration:
                break
        self._count(found)
        return found

    def has_block(self, block_id: BlockId) -> bool:
        """See Offer."""
        return all(self._may_have([block_id])) and self._particles.has_block(block_id)

    def next_links(self, _window_id: WindowId) -> list[bytes]:
        """See Offer. What continues a window of a group nobody asks."""
        return []

    # -- inside -------------------------------------------------------------------------------

    def _current(self) -> Scope | None:
        """What the peer may have now; None where that is nothing any more."""
        now_s = self._egress.now_s()
        if self._scope is not None and now_s - self._checked_s >= CHECK_AGAIN_S:
            try:
                self._scope = self._egress.scope(self._group, self._capability, self._peer)
            except NotPermitted:
                self._scope = None
            self._checked_s = now_s
        return self._scope

    def _may(self, row: GroupWindow) -> bool:
        """Whether a window is the peer's to have, and here: then so are those before it."""
        scope = self._current()
        return (
            scope is not None
            and scope.allows(Op.FETCH, row.model_id)
            and self._particles.get_record(row.name) is not None
        )

    def _may_all(self, tip: WindowId) -> bool:
        row = self._index.window(self._group, tip)
        rows = [row] if row is not None else self._index.standing_for(self._group, tip)[:1]
        return all(map(self._may, rows))

    def _may_have(self, block_ids: Sequence[BlockId]) -> list[bool]:
        scope = self._current()
        if scope is None or not self._has_room(scope):
            return [False] * len(block_ids)
        if scope.model_id is None and scope.roots is None:
            return self._index.have_blocks(self._group, block_ids)
        return [
            any(map(self._may, self._index.windows_with(self._group, name))) for name in block_ids
        ]

    def _has_room(self, scope: Scope) -> bool:
        egress, most = self._egress, scope.bytes_per_hour
        return (
            most is None or egress.given.num_bytes(self._group, self._peer, egress.now_s()) < most
        )

    def _count(self, found: Sequence[memoryview | None]) -> None:
        egress, num_bytes = self._egress, sum(len(each) for each in found if each is not None)
        if num_bytes:
            egress.given.add(self._group, self._peer, num_bytes, egress.now_s())
