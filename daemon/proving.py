"""Whether links that go beyond an answer attest it, too: its peer is asked for what they name.

A node that publishes a conversation signs spans of it; who asks for a part of it gets links
whose last windows it did not ask for. These are small, and lie with whoever answered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import trio

from daemon.ways import Way
from glia.errors import HashMismatch, MalformedParticle, NetworkError, NotFound, RemoteProtocolError
from glia.graph.domain import Salt
from glia.graph.ids import PrefixKey
from glia.graph.link import Link, check_link
from glia.graph.profile import Profile
from glia.graph.window import WindowRecord
from p2p.attesting import num_attested
from p2p.host import PeerId
from p2p.messages import FoundChain
from p2p.search import Answer
from p2p.walking import Question, Walk

_RESET_S = 1.0
_log = logging.getLogger("gliad.proving")


@dataclass(frozen=True)
class Proven:
    """An answer, all of which is attested.

    Attributes:
        chain: all of its windows, from genesis on.
        links: that hold.
        beyond: windows that follow its tip, up to the end of a link; named only.
    """

    answer: Answer
    chain: Sequence[WindowRecord]
    links: Sequence[Link]
    beyond: Sequence[WindowRecord] = ()


async def prove(
    way: Way,
    profile: Profile,
    keys: Sequence[PrefixKey],
    claimed: Proven,
    may: Sequence[Link],
    timeout_s: float,
) -> Proven | None:
    """An answer as far as it is attested; None where nothing of it is. Never raises for a peer.

    Args:
        keys: the prefix key of genesis, then that of each window.
        claimed: its links hold, but may not attest all of it.
        may: links that do, if what follows the answer is what they name.
    """
    chain = claimed.chain
    num_before = len(chain) - len(claimed.answer.records)
    num = num_attested(claimed.links, num_before)
    if num >= len(chain):
        return claimed
    nearest = sorted(may, key=lambda link: link.claim.num_windows)
    link = next((each for each in nearest if each.claim.num_before <= num), None)
    if link is not None:
        with trio.move_on_after(timeout_s):
            beyond = await _beyond(way, profile, chain[-1], link, claimed.answer.peer)
            if beyond and _holds(link, keys, [*chain, *beyond], way.salt):
                return replace(claimed, links=(*claimed.links, link), beyond=beyond)
    return _cut(claimed, num, num_before)


async def _beyond(
    way: Way, profile: Profile, tip: WindowRecord, link: Link, peer: PeerId
) -> Sequence[WindowRecord]:
    """The windows from an answer's tip to the end of a link; none where they cannot be had."""
    held = {tip.window_id: tip}
    question = Question(tip.model_id, profile, held=held.get, salt=way.salt)
    walk = Walk(question, link.claim.tip, link.claim.num_windows)
    try:
        stream = await way.open_find(peer)
        try:
            await way.asks(stream).get_records(walk, start=tip.end // profile.block_size)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()
    except (HashMismatch, RemoteProtocolError) as error:
        _log.info("asking %s: %s", peer, error)
        way.peering.lied(peer)
    except (MalformedParticle, NetworkError, NotFound) as error:
        _log.debug("asking %s: %s", peer, error)
    return walk.records if walk.is_over and walk.base is tip else ()


def _holds(
    link: Link, keys: Sequence[PrefixKey], records: Sequence[WindowRecord], salt: Salt | None
) -> bool:
    claim = link.claim
    key, first = keys[claim.num_before], records[claim.num_before]
    if salt is not None and first.position_start == salt.start:
        key = salt.key(key)
    try:
        check_link(claim, key, records[claim.num_before :])
    except MalformedParticle:
        return False
    return True


def _cut(claimed: Proven, num: int, num_before: int) -> Proven | None:
    """The first `num` windows."""
    if num <= num_before:
        return None
    answer, chain = claimed.answer, claimed.chain[:num]
    providers = tuple(
        replace(each, num_windows=min(each.num_windows, num)) for each in answer.providers
    )
    shorter = replace(
        answer,
        chain=FoundChain(num, chain[-1].window_id, answer.chain.numerics_class, ()),
        records=answer.records[: num - num_before],
        providers=providers,
    )
    return replace(claimed, answer=shorter, chain=chain)
