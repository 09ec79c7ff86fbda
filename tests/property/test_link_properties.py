"""Links are injective and strict; spans, boundaries and labels keep their promises."""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glia.errors import BadRequest, MalformedParticle
from glia.graph.boundaries import MAX_KEYS, announced, asked, between, boundaries, pairs
from glia.graph.cid import cid_bytes, cid_text, name_of_cid, parse_cid
from glia.graph.conversation import Begin, Head, Message, Replay, Turn, make_turn
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, PrefixKey, ProfileId, WindowId, genesis_window
from glia.graph.link import LINK_BYTES, Claim, Link, LinkKind, parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.privacy import Visibility
from glia.graph.publishable import public_tokens
from glia.graph.spans import SPAN_WINDOWS, claims, spans
from tests.builders import make_chain

FULL = bool(os.environ.get("GLIA_FULL"))
SIGNER = Signer(bytes(32))

names = st.binary(min_size=32, max_size=32)
GROUP, OTHER = GroupId(bytes(32)), GroupId(bytes([1]) * 32)
AGGREGATE = Visibility.AGGREGATE
u64 = st.integers(0, 2**64 - 1)


@st.composite
def links(draw: st.DrawFn) -> Link:
    model, profile = ModelId(draw(names)), ProfileId(draw(names))
    before = draw(st.sampled_from((0, 1, 16, 2**32 - 2)))
    base, tip = draw(st.tuples(names, names).filter(lambda pair: pair[0] != pair[1]))
    claim = Claim(
        kind=draw(st.sampled_from(LinkKind)),
        model_id=model,
        profile_id=profile,
        base=WindowId(base) if before else genesis_window(model, profile),
        tip=WindowId(tip),
        prefix_key=PrefixKey(draw(names)),
        num_before=before,
        num_windows=min(before + draw(st.integers(1, 256)), 2**32 - 1),
    )
    return sign_link(Signer(draw(names)), claim, draw(u64), draw(u64))


@pytest.mark.spec(17)
@given(links())
def test_a_link_is_read_back_from_its_bytes(link: Link) -> None:
    """Reading is the inverse of writing, so writing is injective."""
    assert parse_link(link.encoding) == link
    assert len(link.encoding) == LINK_BYTES


@pytest.mark.spec(17)
def test_any_flipped_bit_is_refused() -> None:
    """Every one of the 2,304, of a link of a real chain."""
    good = sign_link(SIGNER, claims(make_chain(20).records, 0)[1], 3, 1_800_000_000).encoding
    for bit in range(8 * LINK_BYTES):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedParticle):
            parse_link(bytes(bad))


@pytest.mark.spec(17)
@given(links(), st.data())
def test_changed_bytes_are_no_link(link: Link, data: st.DataObject) -> None:
    out = bytearray(link.encoding)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(out)))
        out[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    if bytes(out) != link.encoding:
        with pytest.raises(MalformedParticle):
            parse_link(bytes(out))


@given(st.binary(max_size=400))
def test_any_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedParticle):
        parse_link(data)


def test_every_field_counts() -> None:
    claim = claims(make_chain(20).records, 0)[1]
    other = WindowId(b"\7" * 32)
    variants = [
        sign_link(SIGNER, claim, 1, 1),
        sign_link(SIGNER, claim, 2, 1),
        sign_link(SIGNER, claim, 1, 2),
        sign_link(Signer(b"\1" * 32), claim, 1, 1),
        *(
            sign_link(SIGNER, changed, 1, 1)
            for changed in (
                replace(claim, kind=LinkKind.SPLICE),
                replace(claim, model_id=ModelId(other)),
                replace(claim, profile_id=ProfileId(other)),
                replace(claim, base=other),
                replace(claim, tip=other),
                replace(claim, prefix_key=PrefixKey(other)),
                replace(claim, num_before=15),
                replace(claim, num_windows=21),
            )
        ),
    ]
    assert len({link.link_id for link in variants}) == len(variants)
    assert len({link.signature for link in variants}) == len(variants)


@pytest.mark.spec(23)
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_spans_attest_each_window_once(num_before: int, num_windows: int) -> None:
    found = spans(num_before, num_windows)
    covered = [index for start, end in found for index in range(start, end)]
    assert covered == list(range(num_before, num_windows))
    assert all(0 < end - start <= SPAN_WINDOWS for start, end in found)
    assert len(spans(0, num_windows)) <= num_windows / 16 + 1
    ends = {end for _, end in found}
    assert ends >= {count for count in announced(num_windows) if count > num_before}


@given(st.integers(0, 40), st.lists(st.integers(0, 40), max_size=12))
def test_a_chain_that_grows_needs_each_span_once(num_before: int, growth: list[int]) -> None:
    """However it grows, what was signed once is what would be signed again, or in the middle."""
    signed: list[tuple[int, int]] = []
    total = num_before
    for more in growth:
        total += more
        signed += [span for span in spans(num_before, total) if span not in signed]
        assert set(spans(num_before, total)) <= set(signed)
    assert len(signed) == len(set(signed))
    assert len(signed) <= (total - num_before) / SPAN_WINDOWS + 1 + len(growth)


@pytest.mark.spec(23)
def test_claims_are_of_the_chain_and_in_order() -> None:
    chain = make_chain(50)
    for num_before in (0, 5, 16, 40, 50):
        found = claims(chain.records, num_before)
        assert [(c.num_before, c.num_windows) for c in found] == spans(num_before, 50)
        assert all(later.base == earlier.tip for earlier, later in pairwise(found))
        for claim in found:
            assert claim.tip == chain.window_ids[claim.num_windows - 1]
            assert claim.prefix_key == chain.keys[claim.num_windows - 1]
    assert claims([], 0) == []


@pytest.mark.fault("F22")
@given(st.integers(1, 2**20))
def test_few_boundaries_are_announced(num_windows: int) -> None:
    found = announced(num_windows)
    assert len(found) <= max(1, 2 + math.log2(num_windows / 16))  # 16 tokens a window
    assert found == sorted(set(found))
    assert found[-1] == num_windows
    assert all(count in found or 2 * count > num_windows for count in boundaries(num_windows))


@given(st.integers(0, 2**18), st.integers(0, 2**18))
def test_who_shares_windows_is_asked_at_the_boundary_below(one: int, shared: int) -> None:
    """Chain and prompt share so many windows: some boundary of the chain is asked for."""
    shared = min(one, shared)
    common = [count for count in announced(one) if count <= shared]
    if shared >= 16:
        assert common
        assert set(common) & set(asked(shared)) >= set(boundaries(shared))


@given(st.integers(0, 2**20))
def test_a_request_is_bounded_and_can_be_refined(num_windows: int) -> None:
    counts = asked(num_windows)
    assert counts == sorted(set(counts))
    assert len(counts) <= MAX_KEYS
    assert set(counts) >= set(boundaries(num_windows))
    assert counts[-1:] == ([num_windows] if num_windows else [])
    assert counts[:15] == list(range(1, min(num_windows, 15) + 1))
    last = max(boundaries(num_windows), default=0)
    above = [count for count in counts if count > last]
    if num_windows <= 3_525:
        assert above == list(range(last + 1, num_windows + 1))
    gaps = [after - before for before, after in pairwise([last, *(c for c in counts if c > last)])]
    assert max(gaps, default=1) - min(gaps, default=1) <= 1  # evenly


@given(st.integers(0, 2**18), st.data())
def test_refining_finds_the_longest(num_windows: int, data: st.DataObject) -> None:
    """A peer that shares any number of windows is pinned down in a few rounds."""
    shared = data.draw(st.integers(0, num_windows))
    low, high, counts, rounds = 0, num_windows + 1, asked(num_windows), 0
    while counts:
        rounds += 1
        low = max((count for count in counts if count <= shared), default=low)
        high = min((count for count in counts if count > shared), default=high)
        counts = between(low, high)
    assert (low, high) == (shared, shared + 1)
    assert rounds <= 4


def test_pairs_are_keys_with_their_counts() -> None:
    chain = make_chain(20)
    assert pairs(chain.keys, asked(20)) == [
        (count, chain.keys[count - 1]) for count in range(1, 21)
    ]


@pytest.mark.spec(58)
@given(names)
def test_a_cid_is_read_back(name: bytes) -> None:
    assert parse_cid(cid_text(name)) == name_of_cid(cid_bytes(name)) == name


@given(st.text(max_size=70), names, st.integers(0, 58), st.characters())
def test_one_text_is_one_name(text: str, name: bytes, at: int, other: str) -> None:
    good = cid_text(name)
    for candidate in (text, good[:at] + other + good[at + 1 :]):
        try:
            assert cid_text(parse_cid(candidate)) == candidate
        except BadRequest:
            continue


@pytest.mark.spec(50)
@pytest.mark.fault("F27")
def test_labels_are_monotone_and_only_leading_public_tokens_are_public_in_10_000_chains() -> None:
    """Conversations of some turns, of which some cut into what was said before."""
    rng = random.Random("labels")
    for _ in range(100_000 if FULL else 10_000):
        replay = Replay(Begin(0, "c", "m", "float32", ModelId(bytes(32))))
        each: list[Visibility] = []  # of every token: of the message that it is in or before
        groups: list[GroupId | None] = []  # of every token: of its turn
        for number in range(1, rng.randrange(2, 5)):
            keep = rng.randrange(len(each) + 1) if rng.random() < 0.2 else len(each)
            replay.cut(keep)
            del each[keep:]
            del groups[keep:]
            group = rng.choice([None, GROUP, GROUP, OTHER])
            turn = said_of(rng, replay.head, keep, number, group)
            replay.apply(turn)
            for message in turn.messages:
                each += [message.visibility] * (message.end - len(each))
            groups += [turn.group] * (len(each) - keep)
            assert each == sorted(each)
            leading = each.count(Visibility.PUBLIC)
            shared = [g for g, label in zip(groups, each, strict=True) if label is AGGREGATE]
            assert len(set(shared)) <= 1  # nobody's, or one group's
            head = replay.head
            assert head.num_public == leading
            assert head.visibility == (each[-1] if each else Visibility.PUBLIC)
            assert head.group == (shared[0] if shared else None)
            num_shared = leading + (len(shared) if head.group is not None else 0)
            assert head.num_shared == num_shared


def said_of(
    rng: random.Random, before: Head, keep: int, number: int, group: GroupId | None
) -> Turn:
    """A turn of some messages with gaps before them, labelled as their authors like."""
    at, asked = keep, []
    for _ in range(rng.randrange(1, 5)):
        start = at + rng.randrange(4)
        at = start + rng.randrange(60)
        label = rng.choice([Visibility.PUBLIC, Visibility.PUBLIC, *Visibility])
        asked.append(Message("user", "", start, at, label))
    prompt, answer = [7] * (at + rng.randrange(3)), [8] * rng.randrange(1, 9)
    groups = {"group": group, "group_before": before.group}
    return make_turn(before.visibility, keep, prompt, asked, answer, None, number, **groups)


labelled = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from(Visibility)), max_size=6
)


@pytest.mark.spec(50)
@settings(max_examples=300)
@given(labelled)
def test_no_token_of_a_stricter_span_counts_however_they_stand(
    given_spans: list[tuple[int, int, Visibility]],
) -> None:
    end = public_tokens(given_spans)
    strict = [start for start, _, label in given_spans if label is not Visibility.PUBLIC]
    assert 0 <= end <= min(strict, default=50)
    assert end == 0 or any(label is Visibility.PUBLIC for *_, label in given_spans)


@pytest.mark.spec(50)
def test_a_template_before_a_private_message_is_not_public() -> None:
    public, private = Visibility.PUBLIC, Visibility.PRIVATE
    spans_of = [(4, 30, public), (34, 50, private), (50, 90, public)]
    assert public_tokens(spans_of) == 30
    assert public_tokens([(4, 32, public)]) == 32
    assert public_tokens([(0, 90, Visibility.AGGREGATE)]) == 0
    assert public_tokens([]) == 0
