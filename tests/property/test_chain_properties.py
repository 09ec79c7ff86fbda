"""Chains: what prompts share, prefix keys, the longest whole prefix against a brute-force model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glia.errors import MalformedParticle, NotFound
from glia.graph.chain import chain_prefix_key, fork_point, longest_chain, prefix_keys, walk
from glia.graph.ids import (
    BlockId,
    ModelId,
    PrefixKey,
    ProfileId,
    WindowId,
    digest,
    genesis_window,
)
from glia.graph.window import WindowRecord
from tests.builders import MODEL, TINY, make_chain, make_profile, make_tokens

SIZE = TINY.block_size
CLASSES = ("native:a", "native:b")


@pytest.mark.spec(11)
@given(st.integers(0, 3), st.integers(0, SIZE - 1), st.integers(0, 31), st.booleans())
def test_prompts_share_exactly_the_names_before_the_first_difference(
    window: int, offset: int, bit: int, same_payloads: bool
) -> None:
    tokens = make_tokens(4 * SIZE)
    at = window * SIZE + offset
    other = (*tokens[:at], tokens[at] ^ (1 << bit), *tokens[at + 1 :])
    one, two = (_blocks_by_layer(prompt, same_payloads) for prompt in (tokens, other))
    for layer in one:
        assert one[layer][:window] == two[layer][:window]
        assert not set(one[layer][window:]) & set(two[layer][window:])
    keys, others = (prefix_keys(MODEL, TINY, prompt) for prompt in (tokens, other))
    assert keys[:window] == others[:window]
    assert not set(keys[window:]) & set(others[window:])


def _blocks_by_layer(tokens: tuple[int, ...], same_payloads: bool) -> dict[int, list[bytes]]:
    """Block ids per layer. With equal payloads only tokens and previous ids tell them apart."""
    from_payload = make_chain(4, tokens=tokens)
    if not same_payloads:
        return {n: [record.blocks[n] for record in from_payload.records] for n in range(2)}
    found: dict[int, list[bytes]] = {}
    header = TINY.header_bytes
    for layer in range(2):
        prev = from_payload.particles[0][layer][96:128]
        for particles in from_payload.particles:
            block = particles[layer][:96] + prev + particles[layer][128:header] + b"same"
            prev = digest(block)
            found.setdefault(layer, []).append(prev)
    return found


@pytest.mark.spec(14)
@given(st.integers(0, 5 * SIZE), st.integers(0, 5 * SIZE), st.integers(0, 2**31))
def test_keys_of_a_prefix_are_a_prefix_of_the_keys(length: int, cut: int, seed: int) -> None:
    tokens = make_tokens(length, seed)
    keys = prefix_keys(MODEL, TINY, tokens)
    assert len(keys) == length // SIZE
    assert prefix_keys(MODEL, TINY, tokens[:cut]) == keys[: min(cut, length) // SIZE]
    assert len(set(keys)) == len(keys)
    strangers = (
        prefix_keys(ModelId(digest(MODEL)), TINY, tokens),
        prefix_keys(MODEL, make_profile(num_layers=3), tokens),
    )
    assert not set(keys) & {key for stranger in strangers for key in stranger}


@given(st.integers(0, 4), st.integers(1, 3), st.integers(0, 2))
def test_a_fork_shares_its_base(shared: int, one: int, two: int) -> None:
    base = make_chain(shared)
    left = make_chain(one, base=base, seed=1)
    right = make_chain(two, base=base, seed=2)
    assert fork_point(left.records, right.records) == shared
    assert fork_point(left.records, left.records) == shared + one
    known = {record.window_id: record for record in (*left.records, *right.records)}
    assert tuple(walk(left.tip, known.get)) == left.records
    assert chain_prefix_key(MODEL, TINY.profile_id, left.records) == left.keys[-1]


@given(st.integers(1, 6), st.data())
def test_a_walk_needs_every_window(length: int, data: st.DataObject) -> None:
    chain = make_chain(length)
    known = {record.window_id: record for record in chain.records}
    known.pop(data.draw(st.sampled_from(chain.window_ids)))
    with pytest.raises(NotFound):
        walk(chain.tip, known.get)


@given(st.data())
def test_a_walk_ends_whatever_get_answers(data: st.DataObject) -> None:
    """`get` answers any record of a pool to any question, for ever."""
    pool = [*make_chain(3).records, *make_chain(3, seed=1, model_id=ModelId(b"m" * 32)).records]
    pool.append(replace(pool[1], tokens=()))
    pool.append(replace(pool[0], position_start=2**48, blocks=()))
    asked: list[WindowId] = []

    def get(window_id: WindowId) -> WindowRecord:
        asked.append(window_id)
        return data.draw(st.sampled_from(pool))

    try:
        chain = walk(WindowId(b"x" * 32), get)
    except MalformedParticle:
        chain = []
    assert len(asked) <= len(pool)
    assert [record.position_start for record in chain] == [n * SIZE for n in range(len(chain))]


# -- the longest chain -----------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Windows somebody knows, what a look-up answers, and a prompt."""

    records: dict[WindowId, WindowRecord]
    whole: frozenset[WindowId]
    answers: dict[PrefixKey, list[WindowId]]
    prompt: tuple[int, ...]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A forest with forks, several classes, holes, strangers, and a find() that lies."""
    genesis = genesis_window(MODEL, TINY.profile_id)
    made: list[WindowRecord] = []
    keys: dict[WindowId, tuple[int, ...]] = {genesis: ()}
    for salt in range(draw(st.integers(0, 14))):
        parent = draw(st.sampled_from([genesis, *(record.window_id for record in made)]))
        letter = draw(st.integers(0, 1))
        record = _record(draw, parent, keys[parent], letter, salt)
        made.append(record)
        keys[record.window_id] = (*keys[parent], letter)
    ids = [record.window_id for record in made]
    answers: dict[PrefixKey, list[WindowId]] = {}
    for window_id in ids:
        answers.setdefault(_key(keys[window_id]), []).append(window_id)
    letters = draw(st.lists(st.integers(0, 1), max_size=6))
    for depth in range(1, len(letters) + 1):
        lies = draw(st.lists(st.sampled_from([*ids, WindowId(b"?" * 32)]), max_size=4))
        answers.setdefault(_key(tuple(letters[:depth])), []).extend(lies)
    tail = draw(st.integers(0, SIZE - 1))
    holes = draw(st.sets(st.sampled_from(ids), max_size=3)) if ids else set()
    return World(
        records={record.window_id: record for record in made},
        whole=frozenset(ids) - holes,
        answers=answers,
        prompt=_tokens(tuple(letters)) + (0,) * tail,
    )


def _record(
    draw: st.DrawFn, parent: WindowId, path: tuple[int, ...], letter: int, salt: int
) -> WindowRecord:
    """A window after `parent`; one in some is a stranger that only looks as if it fitted."""
    record = WindowRecord(
        model_id=MODEL,
        profile_id=TINY.profile_id,
        numerics_class=draw(st.sampled_from((*CLASSES, "native:other"))),
        prev=parent,
        position_start=len(path) * SIZE,
        tokens=(letter,) * SIZE,
        blocks=tuple(BlockId(digest(bytes([salt, layer]))) for layer in range(2)),
    )
    strange = draw(st.integers(0, 12))
    if strange == 0:
        return replace(record, model_id=ModelId(b"m" * 32))
    if strange == 1:
        return replace(record, profile_id=ProfileId(b"p" * 32))
    if strange == 2:
        return replace(record, position_start=record.position_start + SIZE)
    if strange == 3:
        return replace(record, blocks=record.blocks[:1])
    return record


def _tokens(letters: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(letter for letter in letters for _ in range(SIZE))


def _key(letters: tuple[int, ...]) -> PrefixKey:
    return prefix_keys(MODEL, TINY, _tokens(letters))[-1]


def all_chains(world: World) -> Iterator[list[WindowRecord]]:
    """Every usable chain, by trying every known window after every chain."""
    found: list[list[WindowRecord]] = [[]]
    while found:
        chain = found.pop()
        yield chain
        at = len(chain)
        before = chain[-1].window_id if chain else genesis_window(MODEL, TINY.profile_id)
        wanted = world.prompt[at * SIZE : (at + 1) * SIZE]
        for window_id in world.whole:
            record = world.records[window_id]
            if (record.prev, record.tokens, record.position_start) == (before, wanted, at * SIZE):
                same = (record.model_id, record.profile_id) == (MODEL, TINY.profile_id)
                if same and record.numerics_class in CLASSES and len(record.blocks) == 2:
                    found.append([*chain, record])


@pytest.mark.spec(14, 22)
@given(worlds())
def test_the_longest_chain_is_the_brute_force_one(world: World) -> None:
    asked: list[PrefixKey] = []

    def find(key: PrefixKey) -> list[WindowId]:
        asked.append(key)
        return world.answers.get(key, [])

    def get(window_id: WindowId) -> WindowRecord | None:
        return world.records[window_id] if window_id in world.whole else None

    chain = longest_chain(MODEL, TINY, world.prompt, find, get, CLASSES)

    def preferred(chain: list[WindowRecord]) -> tuple[int, int, bytes]:
        if not chain:
            return (0, 0, b"")
        return (-len(chain), CLASSES.index(chain[-1].numerics_class), chain[-1].window_id)

    assert chain == min(all_chains(world), key=preferred)
    assert len(asked) <= len(chain) + 1  # a look-up that failed asks no further


@given(worlds())
def test_no_class_no_chain(world: World) -> None:
    def get(window_id: WindowId) -> WindowRecord | None:
        return world.records.get(window_id)

    assert longest_chain(MODEL, TINY, world.prompt, world.answers.get, get, ()) == []
