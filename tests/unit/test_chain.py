"""Chains: walking, and the cases of the longest whole prefix that people should read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from glia.errors import MalformedParticle, NotFound
from glia.graph.chain import fork_point, longest_chain, prefix_keys, walk
from glia.graph.ids import PrefixKey, WindowId, genesis_window
from glia.graph.numerics import exact_with
from glia.graph.window import WindowRecord
from tests.builders import MODEL, TINY, Chain, make_chain, make_tokens

GENESIS = genesis_window(MODEL, TINY.profile_id)


class Chains:
    """What one node knows of some chains: every key's windows, less those with a hole."""

    def __init__(self, *chains: Chain, holes: Iterable[WindowId] = ()) -> None:
        self.records = {record.window_id: record for chain in chains for record in chain.records}
        self.holes = set(holes)
        self.by_key: dict[PrefixKey, list[WindowId]] = {}
        for chain in chains:
            for key, window_id in zip(chain.keys, chain.window_ids, strict=True):
                self.by_key.setdefault(key, []).append(window_id)

    def get(self, window_id: WindowId) -> WindowRecord | None:
        return None if window_id in self.holes else self.records.get(window_id)

    def longest(
        self, tokens: Iterable[int], *classes: str, others: bool = False
    ) -> list[WindowRecord]:
        return longest_chain(
            MODEL,
            TINY,
            tuple(tokens),
            lambda key: self.by_key.get(key, ()),
            self.get,
            classes or ("native:test",),
            others=others,
        )


@pytest.mark.spec(14)
def test_the_longest_match_of_a_prompt_that_goes_on() -> None:
    chain = make_chain(4)
    known = Chains(chain)
    assert known.longest((*chain.tokens, 7, 8, 9)) == list(chain.records)
    assert known.longest(chain.tokens[:-1]) == list(chain.records[:3])
    assert known.longest(chain.tokens[:15]) == known.longest(()) == []
    assert known.longest(make_tokens(64, seed=9)) == []


@pytest.mark.spec(22)
@pytest.mark.parametrize("hole", range(4))
def test_a_hole_ends_the_prefix(hole: int) -> None:
    chain = make_chain(4)
    known = Chains(chain, holes=[chain.window_ids[hole]])
    assert known.longest(chain.tokens) == list(chain.records[:hole])


def test_another_chain_for_the_same_tokens_stands_in_for_a_hole() -> None:
    """Windows of two chains are never mixed: the whole other chain is taken."""
    one = make_chain(3)
    two = make_chain(3, tokens=one.tokens, numerics_class="native:other")
    classes = ("native:test", "native:other")
    assert Chains(one, two).longest(one.tokens, *classes) == list(one.records)
    known = Chains(one, two, holes=one.window_ids[2:])
    assert known.longest(one.tokens, *classes) == list(two.records)
    assert known.longest(one.tokens, "native:test") == list(one.records[:2])


def test_of_chains_as_long_the_one_with_the_fewest_windows_of_other_classes() -> None:
    own = make_chain(4)
    other = make_chain(4, tokens=own.tokens, numerics_class="a:native:other")
    base = make_chain(2, tokens=own.tokens[:32], numerics_class="a:native:other")
    mixed = make_chain(2, tokens=own.tokens[32:], base=base)
    known = Chains(own, other, mixed)
    assert known.longest(own.tokens, others=True) == list(own.records)
    holes = Chains(own, other, mixed, holes=own.window_ids[3:])
    assert holes.longest(own.tokens, others=True) == list(mixed.records)
    assert holes.longest(own.tokens) == list(own.records[:3])


def test_a_class_that_was_not_asked_for_is_not_used() -> None:
    chain = make_chain(2, numerics_class="native:other")
    assert Chains(chain).longest(chain.tokens) == []


def test_canonical_windows_follow_canonical_ones_alone() -> None:
    canonical = make_chain(4, numerics_class="canonical")
    native = make_chain(2, tokens=canonical.tokens[:32], numerics_class="native:test")
    false = make_chain(2, tokens=canonical.tokens[32:], numerics_class="canonical", base=native)
    classes = exact_with("native:test")
    known = Chains(native, false)
    assert known.longest(canonical.tokens, *classes) == list(native.records)
    assert known.longest(canonical.tokens, others=True) == list(native.records)
    with pytest.raises(MalformedParticle):
        walk(false.window_ids[-1], known.get)
    both = Chains(native, false, canonical)
    assert both.longest(canonical.tokens, *classes) == list(canonical.records)
    assert both.longest(canonical.tokens, *exact_with("canonical")) == list(canonical.records)
    above = make_chain(2, tokens=make_tokens(32, 3), numerics_class="native:test", base=canonical)
    tokens = (*canonical.tokens, *above.tokens[64:])
    assert Chains(above).longest(tokens, *classes) == list(above.records)
    assert Chains(above).longest(tokens, "canonical") == list(canonical.records)


def test_of_chains_as_long_the_own_one_is_exact_before_the_canonical_one() -> None:
    own = make_chain(3, numerics_class="native:test")
    canonical = make_chain(3, tokens=own.tokens, numerics_class="canonical")
    known = Chains(own, canonical)
    assert known.longest(own.tokens, *exact_with("native:test")) == list(own.records)
    holes = Chains(own, canonical, holes=own.window_ids[2:])
    assert holes.longest(own.tokens, *exact_with("native:test")) == list(canonical.records)
    assert holes.longest(own.tokens, *exact_with("native:else")) == list(canonical.records)


def test_a_find_that_lies_changes_nothing() -> None:
    chain, stranger = make_chain(3), make_chain(3, seed=5)
    known = Chains(chain, stranger)
    lies = [*stranger.window_ids, *reversed(chain.window_ids), WindowId(b"?" * 32)]
    known.by_key = dict.fromkeys((*chain.keys, *stranger.keys), lies)
    assert known.longest(chain.tokens) == list(chain.records)


@pytest.mark.spec(22)
def test_a_record_without_a_layer_is_not_whole() -> None:
    chain = make_chain(1)
    known = Chains(chain)
    short = replace(chain.records[0], blocks=chain.records[0].blocks[:1])
    known.records = {short.window_id: short}
    known.by_key = {chain.keys[0]: [short.window_id]}
    assert known.longest(chain.tokens) == []


@pytest.mark.spec(23)
def test_a_walk_reads_each_record_once() -> None:
    chain = make_chain(20)
    asked: list[WindowId] = []
    records = {record.window_id: record for record in chain.records}

    def get(window_id: WindowId) -> WindowRecord | None:
        asked.append(window_id)
        return records.get(window_id)

    walked = walk(chain.tip, get)
    assert tuple(walked) == chain.records
    assert asked == chain.window_ids[::-1]
    assert walked[0].prev == GENESIS
    assert all(after.prev == before.window_id for before, after in pairwise(walked))


def test_a_walk_from_genesis_finds_nothing() -> None:
    with pytest.raises(NotFound):
        walk(GENESIS, Chains(make_chain(1)).get)


def test_windows_that_do_not_follow_are_malformed() -> None:
    first, second, _ = make_chain(3).records
    unrooted = replace(first, prev=WindowId(bytes(32)))
    after_unrooted = replace(second, prev=unrooted.window_id)
    gap = replace(second, position_start=32)
    mixed = replace(second, model_id=type(MODEL)(bytes(32)))
    narrow = replace(second, blocks=second.blocks[:1])
    for tip in (unrooted, after_unrooted, gap, mixed, narrow):
        known = {record.window_id: record for record in (first, unrooted, tip)}
        with pytest.raises(MalformedParticle):
            walk(tip.window_id, known.get)


def test_where_chains_fork() -> None:
    base = make_chain(2)
    left, right = (make_chain(2, base=base, seed=seed) for seed in (1, 2))
    assert fork_point(left.records, right.records) == 2
    assert fork_point(base.records, left.records) == 2
    assert fork_point((), left.records) == 0


@pytest.mark.spec(14)
def test_a_tail_has_no_key() -> None:
    tokens = make_tokens(47)
    keys = prefix_keys(MODEL, TINY, tokens)
    assert len(keys) == 2
    assert keys == prefix_keys(MODEL, TINY, tokens[:32])
