"""Whose links are a reason to use K/V: decisions, pure (SECURITY T2, 3.5).

A hash says that bytes are the named ones, a link says who computed them. Neither says that
they are right; so by default only those are taken at their word whom the user named, and those
that are connected from this machine or its LAN.

Such a peer may also pass on what others computed: links of these are then as good as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Literal

from p2p.host import PeerId
from p2p.ledger import Ledger, PeerEntry, Trust
from p2p.neurons import Neurons, Word

Policy = Literal["any", "lan", "known", "own"]
_ORDER: tuple[Trust, ...] = ("own", "known", "stranger")


@dataclass(frozen=True)
class Standing:
    """What is known of a neuron here.

    Attributes:
        trust: own, known (a peer that the user named signs as it, or one that is near where the
            policy counts these), or stranger.
        is_banned: a peer that is banned signs as it.
        is_never: the user, or a proof, says that nothing of its is used (p2p/neurons.py).
    """

    trust: Trust = "stranger"
    is_banned: bool = False
    is_never: bool = False

    @property
    def shown(self) -> str:
        """In a word."""
        if self.is_never:
            return "never"
        return "banned" if self.is_banned else self.trust


STRANGER = Standing()


@dataclass(frozen=True)
class Accept:
    """Whose links attest.

    Attributes:
        policy: any signer, those that are known (with "lan": also by being near), or this
            node's own neuron alone.
        neurons: taken whatever the policy: the user listed them.
    """

    policy: Policy = "lan"
    neurons: frozenset[bytes] = frozenset()

    def takes(self, neuron: bytes, standing: Standing) -> bool:
        """Whether what a neuron attests may be used."""
        if standing.is_never:
            return False
        if standing.trust == "own" or neuron in self.neurons:
            return True
        if standing.is_banned or self.policy == "own":
            return False
        return self.policy == "any" or standing.trust == "known"

    def passes_on(self, trust: Trust, *, is_banned: bool) -> bool:
        """Whether what a peer offers may be used, whoever computed it.

        It had to accept that itself: so among friends one need not know all of them.
        """
        return self.policy in ("lan", "known") and trust in ("own", "known") and not is_banned


def is_near(remote_ip: str) -> bool:
    """Whether packets from there come from this machine, or its LAN. "": not known, so no."""
    if not remote_ip:
        return False
    address = ip_address(remote_ip.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_private and not mapped.is_unspecified


class Acquaintance:
    """Who is who, by what peers proved (p2p/introducing.py) and by whom the user named.

    Args:
        own: this node's neuron.
        named: peers that the settings name; the ledger has those that were added since.
        neurons: what is said of neurons themselves, which counts most.
        all_named: whoever is in this network was given its key.
        near: peers that count as named while they are connected.
    """

    def __init__(
        self,
        ledger: Ledger,
        own: bytes,
        named: Collection[PeerId],
        neurons: Neurons,
        *,
        all_named: bool = False,
        near: Callable[[], Collection[PeerId]] = frozenset,
    ) -> None:
        self._ledger, self._own, self._named = ledger, own, frozenset(named)
        self._neurons = neurons
        self._all_named, self._near = all_named, near

    def trust_of(self, peer: PeerId, entry: PeerEntry) -> Trust:
        """A peer's."""
        return self._trust_of(peer, entry, self._near())

    def _trust_of(self, peer: PeerId, entry: PeerEntry, near: Collection[PeerId]) -> Trust:
        if entry.neuron == self._own.hex():
            return "own"
        is_named = self._all_named or peer in self._named or peer in near
        return "known" if is_named and entry.trust == "stranger" else entry.trust

    def standings(self) -> dict[bytes, Standing]:
        """Every neuron that is no stranger, or banned; of several peers the best trust counts."""
        found, near = {self._own: Standing("own")}, self._near()
        for peer, entry in self._ledger.entries():
            trust = self._trust_of(peer, entry, near) if entry.neuron else "stranger"
            if not entry.neuron or (trust == "stranger" and not entry.is_banned):
                continue  # most may be such, and this is asked for each few messages
            neuron = bytes.fromhex(entry.neuron)
            before = found.get(neuron, STRANGER)
            found[neuron] = Standing(
                min(before.trust, trust, key=_ORDER.index),
                before.is_banned or entry.is_banned,
            )
        for neuron, word in self._neurons.said():
            if neuron != self._own:
                found[neuron] = _said(word, found.get(neuron, STRANGER))
        return found


def _said(word: Word, before: Standing) -> Standing:
    """What a neuron is once the user, or a proof, says something of it."""
    if word == "own" or word == "known":
        return Standing(word)
    return replace(before, is_never=word == "never")
