"""Chains of windows: prefix keys from tokens alone, walking back, the longest whole prefix.

Pure decisions: what is known about a name is asked of functions that the caller
gives, so the same code serves the store, the network and the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from glia.errors import MalformedParticle, NotFound
from glia.graph.domain import Salt
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
from glia.graph.numerics import may_continue
from glia.graph.profile import Profile
from glia.graph.tokens import TOKEN_BYTES, pack_tokens
from glia.graph.window import WindowRecord

Find = Callable[[PrefixKey], Iterable[WindowId]]
Get = Callable[[WindowId], WindowRecord | None]


def prefix_keys(
    model_id: ModelId, profile: Profile, tokens: Sequence[int], salt: Salt | None = None
) -> list[PrefixKey]:
    """The prefix key of each full window of `tokens`, first to last, from tokens alone.

    A partial tail has no key. Args: salt: of the group's domain that begins in them, if one does.
    """
    return list(_keys(model_id, profile, tokens, salt))


def _keys(
    model_id: ModelId, profile: Profile, tokens: Sequence[int], salt: Salt | None
) -> Iterator[PrefixKey]:
    """One after the other: a look-up that ends early derives no more than it asked for."""
    step = TOKEN_BYTES * profile.block_size
    data = pack_tokens(tokens)
    key = genesis_prefix(model_id, profile.profile_id)
    for at in range(0, len(data) - step + 1, step):
        if salt is not None and at == TOKEN_BYTES * salt.start:
            key = salt.key(key)
        key = next_prefix(key, data[at : at + step])
        yield key


def longest_chain(
    model_id: ModelId,
    profile: Profile,
    tokens: Sequence[int],
    find: Find,
    get: Get,
    classes: Sequence[str],
    *,
    others: bool = False,
    salt: Salt | None = None,
) -> list[WindowRecord]:
    """The longest chain of whole windows from genesis whose tokens are a prefix of `tokens`.

    One chain: each record's `prev` is the record before it. Among chains of equal
    length the one with the fewest windows of classes that are not in `classes` is taken, then
    the one whose tip's class stands first there.

    Args:
        others: whether windows of classes that are not in `classes` are considered at all.
        find: window ids known for a prefix key (hints: every answer is checked here).
        get: the verified record of a *whole* window, or None.
        salt: of the group's domain that begins in `tokens`, if one does.
    """
    size = profile.block_size
    root = genesis_window(model_id, profile.profile_id)
    live = {root: 0}  # and how many windows of other classes are in the chain up to it
    reached: list[dict[WindowId, _Reached]] = []
    for index, key in enumerate(_keys(model_id, profile, tokens, salt)):
        begins = salt if salt is not None and salt.start == index * size else None
        before = {begins.window(name) if begins else name: name for name in live}
        wanted = tuple(tokens[index * size : (index + 1) * size])
        here: dict[WindowId, _Reached] = {}
        num_others: dict[WindowId, int] = {}
        for window_id in find(key):
            record = get(window_id)
            if (
                record is not None
                and record.prev in before
                and record.tokens == wanted
                and record.position_start == index * size
                and len(record.blocks) == len(profile.layers)
                and record.model_id == model_id
                and record.profile_id == profile.profile_id
                and (others or record.numerics_class in classes)
                and (not reached or _may_continue(record, reached[-1][before[record.prev]].record))
            ):
                here[window_id] = _Reached(record, before[record.prev])
                is_other = record.numerics_class not in classes
                num_others[window_id] = live[before[record.prev]] + is_other
        if not here:
            break
        reached.append(here)
        live = num_others
    if not reached:
        return []

    def rank(name: WindowId) -> tuple[int, int, WindowId]:
        of = reached[-1][name].record.numerics_class
        return live[name], classes.index(of) if of in classes else len(classes), name

    return _back(reached, min(reached[-1], key=rank))


class _Reached(NamedTuple):
    """A window that continues one of those before it, by that one's own name."""

    record: WindowRecord
    before: WindowId


def _back(reached: list[dict[WindowId, _Reached]], tip: WindowId) -> list[WindowRecord]:
    chain: list[WindowRecord] = []
    for here in reversed(reached):
        record, tip = here[tip]
        chain.append(record)
    chain.reverse()
    return chain


def walk(tip: WindowId, get: Get) -> list[WindowRecord]:
    """The chain that ends in `tip`, genesis first.

    It ends whatever `get` answers: positions only descend.

    Raises:
        NotFound: a window of the chain is not known.
        MalformedParticle: two windows do not follow each other, or the first one does
            not follow its genesis.
    """
    chain: list[WindowRecord] = []
    window_id = tip
    while not chain or chain[-1].position_start > 0:
        record = get(window_id)
        if record is None:
            raise NotFound(f"window {short(window_id)} is not known here")
        if chain and not follows(record, chain[-1]):
            raise MalformedParticle(f"window {short(window_id)}: its successor does not follow it")
        chain.append(record)
        window_id = record.before
    if window_id != genesis_window(chain[-1].model_id, chain[-1].profile_id):
        raise MalformedParticle(f"window {short(tip)}: its chain does not start at its genesis")
    chain.reverse()
    return chain


def follows(record: WindowRecord, successor: WindowRecord) -> bool:
    """Whether they can stand side by side; that `successor` names `record` is not looked at."""
    return (
        record.position_start < record.end == successor.position_start
        and len(record.tokens) == len(successor.tokens)
        and len(record.blocks) == len(successor.blocks)
        and record.model_id == successor.model_id
        and record.profile_id == successor.profile_id
        and _may_continue(successor, record)
    )


def _may_continue(record: WindowRecord, before: WindowRecord) -> bool:
    return may_continue(record.numerics_class, before.numerics_class)


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
