"""The links of a chain that has more of them than one answer holds.

An answer has at most 128, the nearest to the tip first: of one signer, those of 2,048 windows.
Whoever needs those before asks for the links of the window where the answer ended, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from glia.errors import MalformedParticle
from glia.graph.chain import prefix_keys
from glia.graph.link import decode_link
from p2p.asking import Asks
from p2p.messages import FoundChain
from p2p.walking import Question, Walk

_WINDOWS_A_QUESTION = 1024  # two signers' links of so many are an answer


def is_cut(chain: FoundChain, walk: Walk) -> bool:
    """Whether an answer's links end on the way back to what is here."""
    return walk.num_before < _first(chain.links, chain.num_windows) < chain.num_windows


async def ask_on(
    asking: Asks, question: Question, tokens: Sequence[int], chain: FoundChain, walk: Walk
) -> FoundChain:
    """An answer with the links that it had no room for, as far as the peer has them.

    Args:
        tokens: the question's.
        walk: of the chain; it is over.
    Raises: PeerLost, RemoteProtocolError.
    """
    keys = prefix_keys(question.model_id, question.profile, tokens, question.salt)
    links = dict.fromkeys(chain.links)
    at = _first(links, chain.num_windows)
    for _ in range(1 + chain.num_windows // _WINDOWS_A_QUESTION):
        tip = walk.records[at - walk.num_before - 1].window_id
        found = await asking.find(question, [(at, keys[at - 1])], want_records=False)
        more = [link for each in found if each.tip == tip for link in each.links]
        links |= dict.fromkeys(more)
        before, at = at, _first(more, at)
        if at <= walk.num_before or at >= before:
            break
    return msgspec.structs.replace(chain, links=tuple(links))


def _first(links: Iterable[bytes], num_windows: int) -> int:
    """How far back they go: windows before the first that one of them attests."""
    first = num_windows
    for data in links:
        try:
            first = min(first, decode_link(data).claim.num_before)
        except MalformedParticle:
            continue
    return first
