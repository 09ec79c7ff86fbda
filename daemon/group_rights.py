"""What this node grants and checks: capabilities as they are made, and as peers show them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from daemon import group_changes as changes
from daemon import issuing
from daemon.group_file import GroupRow, MemberRow
from glia.errors import NotPermitted
from glia.graph.capability import Chain
from glia.graph.claims import PeerKey
from glia.graph.group import GroupId
from glia.graph.neuron import Signer
from glia.graph.rights import Verifier
from glia.graph.scope import Scope
from p2p.host import PeerId
from p2p.peer_key import key_of

_MAX_CHAINS = 1024


@dataclass(frozen=True)
class Identity:
    """Who this node is on the network.

    Attributes:
        peer: signs with the key that its connections prove.
    """

    neuron: Signer
    peer: Signer

    @property
    def peer_key(self) -> PeerKey:
        """The public half."""
        return PeerKey(self.peer.neuron)


class GroupRights:
    """Of all groups of a node. For any thread; nothing here waits for a disk.

    Args: identity: None of a node without a network: it serves nobody, and delegates nothing.
    """

    def __init__(self, identity: Identity | None, now: Callable[[], float]) -> None:
        self._identity, self._now = identity, now
        self._lock = threading.Lock()
        self._verifiers: dict[GroupId, Verifier] = {}
        self._chains: OrderedDict[tuple[object, ...], Chain] = OrderedDict()

    @property
    def identity(self) -> Identity:
        """Raises: NotPermitted."""
        if self._identity is None:
            raise NotPermitted(
                "a node without a network has no peer key",
                hint="gliad stop, then gliad start --listen /ip4/0.0.0.0/tcp/0",
            )
        return self._identity

    @property
    def peer_key(self) -> PeerKey | None:
        """This node's; None where there is no network."""
        return None if self._identity is None else self._identity.peer_key

    def put(self, row: GroupRow) -> None:
        """Serve by what a group is now."""
        if self._identity is not None:
            verifier = self._verifiers.get(row.group_id)
            verifier = verifier or Verifier(row.group_id, self._identity.peer_key)
            verifier.revoked = changes.list_of(row)
            self._verifiers[row.group_id] = verifier

    def drop(self, group: GroupId) -> None:
        """Serve a group no longer."""
        self._verifiers.pop(group, None)

    def check(self, group: GroupId, capability: bytes, peer: PeerId) -> Scope:
        """What a peer may have of a group here. Raises: NotPermitted, whatever the reason."""
        verifier, key = self._verifiers.get(group), key_of(peer)
        if verifier is None or key is None:
            raise NotPermitted("a group that this node is not in, or a peer without a key")
        with self._lock:
            return verifier.check(capability, key, self._now())

    def chain(self, row: GroupRow, member: MemberRow, holder: PeerKey, life_s: int) -> Chain:
        """A capability for a member: the last one while it is half good, as servers remember it.

        Raises: NotPermitted.
        """
        whom = structs.replace(member, holders=())
        key = (row.group_id, row.epochs[-1].number, row.chain, whom, holder, life_s)
        now_s = int(self._now())
        peer = None if self._identity is None else self._identity.peer
        with self._lock:
            known = self._chains.get(key)
            if known is None or not _is_young(known.scope, now_s):
                known = issuing.issued(row, member, holder, peer, now_s, life_s)
                self._chains[key] = known
                self._chains.move_to_end(key)
            if len(self._chains) > _MAX_CHAINS:
                self._chains.popitem(last=False)
        return known


def _is_young(scope: Scope, now_s: int) -> bool:
    """Whether half of its time is still to come. One of the future is not: clocks jump."""
    return scope.not_before_s <= now_s < (scope.not_before_s + scope.expires_s) // 2
