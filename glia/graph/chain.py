"""Chains of windows: prefix keys from tokens alone, walking back, the longest whole prefix.

Pure decisions: what is known about a name is asked of functions that the caller
gives, so the same code serves the store, the network and the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from glia.errors import MalformedParticle, NotFound
from glia.graph.ids import (
    ModelId,
    PrefixKey,
    ProfileId,
    WindowId,
    genesis_prefix,
    genesis_window,
    next_prefix,
    short,
)
from glia.graph.profile import Profile
from glia.graph.tokens import TOKEN_BYTES, pack_tokens
from glia.graph.window import WindowRecord

Find = Callable[[PrefixKey], Iterable[WindowId]]
Get = Callable[[WindowId], WindowRecord | None]


def prefix_keys(model_id: ModelId, profile: Profile, tokens: Sequence[int]) -> list[PrefixKey]:
    """The prefix key of each full window of `tokens`, first to last, from tokens alone.

    A partial tail has no key.
    """
    step = TOKEN_BYTES * profile.block_size
    data = pack_tokens(tokens)
    key = genesis_prefix(model_id, profile.profile_id)
    keys: list[PrefixKey] = []
    for at in range(0, len(data) - step + 1, step):
        key = next_prefix(key, data[at : at + step])
        keys.append(key)
    return keys


def longest_chain(
    model_id: ModelId,
    profile: Profile,
    tokens: Sequence[int],
    find: Find,
    get: Get,
    classes: Sequence[str],
) -> list[WindowRecord]:
    """The longest chain of whole windows from genesis whose tokens are a prefix of `tokens`.

    One chain: each record's `prev` is the record before it. Among chains of equal
    length the one whose tip's class stands first in `classes` is taken; windows of
    other classes are not considered.

    Args:
        find: window ids known for a prefix key (hints: every answer is checked here).
        get: the verified record of a *whole* window, or None.
    """
    size = profile.block_size
    root = genesis_window(model_id, profile.profile_id)
    live: dict[WindowId, WindowRecord | None] = {root: None}
    parents: list[dict[WindowId, WindowRecord]] = []
    for index, key in enumerate(prefix_keys(model_id, profile, tokens)):
        wanted = tuple(tokens[index * size : (index + 1) * size])
        reached: dict[WindowId, WindowRecord] = {}
        for window_id in find(key):
            record = get(window_id)
            if (
                record is not None
                and record.prev in live
                and record.tokens == wanted
                and record.position_start == index * size
                and record.model_id == model_id
                and record.profile_id == profile.profile_id
                and record.numerics_class in classes
            ):
                reached[window_id] = record
        if not reached:
            break
        parents.append(reached)
        live = dict(reached)
    return _back(parents, classes)


def _back(
    parents: list[dict[WindowId, WindowRecord]], classes: Sequence[str]
) -> list[WindowRecord]:
    if not parents:
        return []
    record = min(parents[-1].values(), key=lambda r: (classes.index(r.numerics_class), r.window_id))
    chain = [record]
    for known in reversed(parents[:-1]):
        record = known[record.prev]
        chain.append(record)
    chain.reverse()
    return chain


def walk(tip: WindowId, get: Get) -> list[WindowRecord]:
    """The chain that ends in `tip`, genesis first.

    Raises:
        NotFound: a window of the chain is not known.
        MalformedParticle: positions do not descend to 0 (a chain cannot be a ring).
    """
    chain: list[WindowRecord] = []
    window_id = tip
    while True:
        record = get(window_id)
        if record is None:
            raise NotFound(f"window {short(window_id)} is not known here")
        if chain and record.end != chain[-1].position_start:
            raise MalformedParticle(f"window {short(window_id)}: positions do not follow")
        chain.append(record)
        if record.position_start == 0:
            break
        window_id = record.prev
    if chain[-1].prev != genesis_window(chain[-1].model_id, chain[-1].profile_id):
        raise MalformedParticle(f"window {short(window_id)}: does not start at its genesis")
    chain.reverse()
    return chain


def fork_point(one: Sequence[WindowRecord], other: Sequence[WindowRecord]) -> int:
    """How many leading windows two chains share."""
    shared = 0
    for left, right in zip(one, other, strict=False):
        if left.window_id != right.window_id:
            break
        shared += 1
    return shared


def chain_prefix_key(
    model_id: ModelId, profile_id: ProfileId, chain: Sequence[WindowRecord]
) -> PrefixKey:
    """The prefix key of a chain's last window, from the records' tokens."""
    key = genesis_prefix(model_id, profile_id)
    for record in chain:
        key = next_prefix(key, pack_tokens(record.tokens))
    return key
