"""Who says that a chain's windows were computed: its links, held to its records. Pure.

Links that do not hold are as good as absent: a signer's clock may be wrong, and whoever
carries a link need not have understood it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from glia.errors import MalformedParticle
from glia.graph.ids import PrefixKey, WindowId
from glia.graph.link import Claim, Link, LinkKind, accept_link
from glia.graph.neuron import NeuronId
from glia.graph.window import WindowRecord
from p2p.ledger import Trust


def links_that_hold(
    links: Iterable[bytes],
    records: Sequence[WindowRecord],
    keys: Sequence[PrefixKey],
    now_s: float,
) -> tuple[list[Link], list[Link]]:
    """Links that are signed and name windows of this chain as they are; then those that may.

    Of the latter the last windows are not among these records, but their base is. A link
    counts once. Peers say how many there are to look at, so each costs its signature and no
    more: its windows are not walked again.

    Args:
        records: a whole chain, from genesis on, that was walked (p2p/walking.py).
        keys: the prefix key of genesis, then that of each window.
        now_s: our clock, seconds since 1970.
    """
    hold: list[Link] = []
    may: list[Link] = []
    for data in dict.fromkeys(links):
        try:
            link = accept_link(data, now_s)
        except MalformedParticle:
            continue
        claim = link.claim
        if not _begins(claim, records):
            continue
        if claim.num_windows > len(records):
            may.append(link)
        elif _ends(claim, records, keys):
            hold.append(link)
    return hold, may


def _begins(claim: Claim, records: Sequence[WindowRecord]) -> bool:
    """Whether the windows of a claim begin in this chain."""
    if claim.kind is not LinkKind.NEXT_BLOCK or claim.num_before >= len(records):
        return False
    first = records[claim.num_before]
    named = (claim.base, claim.model_id, claim.profile_id)
    return named == (first.before, first.model_id, first.profile_id)


def _ends(claim: Claim, records: Sequence[WindowRecord], keys: Sequence[PrefixKey]) -> bool:
    """Whether they end in it."""
    last = records[claim.num_windows - 1]
    return (claim.tip, claim.prefix_key) == (last.window_id, keys[claim.num_windows])


def num_attested(links: Iterable[Link], num_before: int) -> int:
    """How many leading windows are attested, those up to `num_before` taken as such."""
    num = num_before
    for claim in sorted((link.claim for link in links), key=lambda claim: claim.num_before):
        if claim.num_before <= num:
            num = max(num, claim.num_windows)
    return num


def relayed(
    records: Sequence[WindowRecord], num_here: int, links: Iterable[Link]
) -> tuple[Sequence[WindowRecord], list[Link]]:
    """What to say of a chain of which the first windows are here, and who attests it.

    A link can be held to its windows only where all of them are named; so those are, too,
    that follow what is here up to the end of a link.
    """
    touching = [link for link in links if link.claim.num_before < num_here]
    ends = [link.claim.num_windows for link in touching]
    end = max((each for each in ends if each <= len(records)), default=0)
    named = records[: max(num_here, end)]
    return named, [link for link in touching if link.claim.num_windows <= len(named)]


def attested_by(
    records: Sequence[WindowRecord], links: Iterable[Link], trust: Callable[[NeuronId], Trust]
) -> dict[WindowId, NeuronId]:
    """Who says to have computed each window of a chain; of several, who is trusted most.

    Args:
        records: from genesis on. links: that hold.
    """
    found: dict[WindowId, NeuronId] = {}
    for link in sorted(links, key=lambda link: get_args(Trust).index(trust(link.signer))):
        for record in records[link.claim.num_before : link.claim.num_windows]:
            found.setdefault(record.window_id, link.signer)
    return found
