"""Signatures of links that peers sent, verified beside the loop: a long prompt has thousands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from glia.graph.ids import PrefixKey
from glia.graph.link import Link
from glia.graph.window import WindowRecord
from p2p.attesting import links_that_hold
from p2p.provider import RunBlocking

_AT_ONCE = 64  # links, some 8 ms of them: so long goes on what is cancelled


async def verified(
    call: RunBlocking,
    links: Iterable[bytes],
    records: Sequence[WindowRecord],
    keys: Sequence[PrefixKey],
    now_s: float,
) -> tuple[list[Link], list[Link]]:
    """As `links_that_hold`; who is cancelled looks at no more of them.

    Args: call: what calls that, in a thread or however the caller likes.
    """
    each = list(dict.fromkeys(links))
    hold: list[Link] = []
    may: list[Link] = []
    for start in range(0, len(each), _AT_ONCE):
        some = each[start : start + _AT_ONCE]
        found = await call(partial(links_that_hold, some, records, keys, now_s))
        hold += found[0]
        may += found[1]
    return hold, may
