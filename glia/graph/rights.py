"""Whether a capability holds, at one server of one group: cheap questions first.

What it costs who sends rubbish is a signature check at the worst, twenty times a second; and
no index is touched before the answer. See spec/14-capability.md.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from glia.errors import MalformedParticle, NotPermitted
from glia.graph.capability import MAX_CHAIN_BYTES, Chain, parse_chain
from glia.graph.claims import PeerKey
from glia.graph.group import GroupId
from glia.graph.ids import digest
from glia.graph.revoked import Revoked
from glia.graph.scope import Scope

LEEWAY_S = 120  # that clocks may differ by
MAX_CACHED = 10_000
MAX_FAILURES_PER_S = 20
_MAX_PEERS = 1024  # that are counted


@dataclass(slots=True)
class _Failures:
    """Of one peer: how many more it may have now, and when that was so."""

    room: float
    at_s: float


class Verifier:
    """The rights of one group, as one server sees them.

    Attributes:
        revoked: the last list of the issuer's; None where none came: then nobody is served.
    """

    def __init__(self, group: GroupId, server: PeerKey) -> None:
        """Args: server: this node's peer key, as tokens for it alone name it."""
        self._group, self._audiences = group, (group, server)
        self.revoked: Revoked | None = None
        self._signed: OrderedDict[bytes, Chain] = OrderedDict()
        self._failures: OrderedDict[PeerKey, _Failures] = OrderedDict()

    def check(self, data: bytes, peer: PeerKey, now_s: float) -> Scope:
        """What a peer may have here by the capability that it shows.

        Args: peer: the key that its connection proved.
        Raises: NotPermitted, whose reason is for our log: a peer is told none.
        """
        if self._room(peer, now_s) < 1:
            raise NotPermitted("too many capabilities of this peer did not hold")
        try:
            return self._check(data, peer, now_s)
        except NotPermitted:
            self._failed(peer, now_s)
            raise

    def _check(self, data: bytes, peer: PeerKey, now_s: float) -> Scope:
        if len(data) > MAX_CHAIN_BYTES:
            raise NotPermitted(f"a capability cannot be {len(data)} bytes")
        name = digest(data)
        chain = self._signed.get(name)
        is_new = chain is None
        if chain is None:
            chain = _parsed(data)
        if why := self._fault(chain, peer, now_s):
            raise NotPermitted(why)
        if is_new:
            self._verify(name, chain)
        else:
            self._signed.move_to_end(name)
        return chain.scope

    def _fault(self, chain: Chain, peer: PeerKey, now_s: float) -> str | None:
        """Why it does not hold now, signatures apart."""
        scope = chain.scope
        if chain.holder != peer:
            return "a capability of another holder"
        if scope.group != self._group or scope.audience not in self._audiences:
            return "a capability for another group or server"
        if not _is_now(scope, now_s):  # nor then those before it: it lies within their time
            return "a capability that is over, or not yet good"
        if self.revoked is None or self.revoked.is_stale(now_s):
            return "what is revoked is not known: the list is stale"
        if any(self.revoked.names(token.claims) for token in chain.tokens):
            return "a capability that was revoked, or of an epoch that is over"
        return chain.fault

    def _verify(self, name: bytes, chain: Chain) -> None:
        if not all(token.is_signed for token in chain.tokens):
            raise NotPermitted("a token that its issuer did not sign")
        self._signed[name] = chain
        if len(self._signed) > MAX_CACHED:
            self._signed.popitem(last=False)

    def _room(self, peer: PeerKey, now_s: float) -> float:
        known = self._failures.get(peer)
        if known is None:
            return MAX_FAILURES_PER_S
        passed_s = max(0.0, now_s - known.at_s)  # a clock that is set back gives nothing
        return min(MAX_FAILURES_PER_S, known.room + passed_s * MAX_FAILURES_PER_S)

    def _failed(self, peer: PeerKey, now_s: float) -> None:
        self._failures[peer] = _Failures(self._room(peer, now_s) - 1, now_s)
        self._failures.move_to_end(peer)
        if len(self._failures) > _MAX_PEERS:
            self._failures.popitem(last=False)


def _parsed(data: bytes) -> Chain:
    try:
        return parse_chain(data)
    except MalformedParticle as error:
        raise NotPermitted(error.message) from error


def _is_now(scope: Scope, now_s: float) -> bool:
    return scope.not_before_s - LEEWAY_S <= now_s < scope.expires_s + LEEWAY_S
