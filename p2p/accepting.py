"""Whose links are a reason to use K/V: decisions, pure (SECURITY T2, 3.5).

A hash says that bytes are the named ones, a link says who computed them. Neither says that
they are right; so by default only those are taken at their word whom the user named.

A peer that the user named may also pass on what others computed: links of these are then as
good as its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from p2p.host import PeerId
from p2p.ledger import Ledger, PeerEntry, Trust

Policy = Literal["any", "known", "own"]
_ORDER: tuple[Trust, ...] = ("own", "known", "stranger")


@dataclass(frozen=True)
class Standing:
    """What is known of a neuron here.

    Attributes:
        trust: own, known (a peer that the user named signs as it), or stranger.
        is_banned: a peer that is banned signs as it.
    """

    trust: Trust = "stranger"
    is_banned: bool = False


STRANGER = Standing()


@dataclass(frozen=True)
class Accept:
    """Whose links attest.

    Attributes:
        policy: any signer, those that are known, or this node's own neuron alone.
        neurons: taken whatever the policy: the user listed them.
    """

    policy: Policy = "known"
    neurons: frozenset[bytes] = frozenset()

    def takes(self, neuron: bytes, standing: Standing) -> bool:
        """Whether what a neuron attests may be used."""
        if standing.trust == "own" or neuron in self.neurons:
            return True
        if standing.is_banned or self.policy == "own":
            return False
        return self.policy == "any" or standing.trust == "known"

    def passes_on(self, trust: Trust, *, is_banned: bool) -> bool:
        """Whether what a peer offers may be used, whoever computed it.

        It had to accept that itself, and the user named it: so among friends one need not know
        all of them.
        """
        return self.policy == "known" and trust in ("own", "known") and not is_banned


class Acquaintance:
    """Who is who, by what peers proved (p2p/introducing.py) and by whom the user named.

    Args:
        own: this node's neuron.
        named: peers that the settings name; the ledger has those that were added since.
        all_named: whoever is in this network was given its key.
    """

    def __init__(
        self,
        ledger: Ledger,
        own: bytes,
        named: Collection[PeerId],
        *,
        all_named: bool = False,
    ) -> None:
        self._ledger, self._own, self._named = ledger, own, frozenset(named)
        self._all_named = all_named

    def trust_of(self, peer: PeerId, entry: PeerEntry) -> Trust:
        """A peer's."""
        if entry.neuron == self._own.hex():
            return "own"
        is_named = self._all_named or peer in self._named
        return "known" if is_named and entry.trust == "stranger" else entry.trust

    def standings(self) -> dict[bytes, Standing]:
        """Every neuron that is no stranger, or banned; of several peers the best trust counts."""
        found = {self._own: Standing("own")}
        for peer, entry in self._ledger.entries():
            if not entry.neuron:
                continue
            neuron = bytes.fromhex(entry.neuron)
            before = found.get(neuron, STRANGER)
            found[neuron] = Standing(
                min(before.trust, self.trust_of(peer, entry), key=_ORDER.index),
                before.is_banned or entry.is_banned,
            )
        return found
