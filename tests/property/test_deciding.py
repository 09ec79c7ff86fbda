"""Whatever peers do, they cost no more than a small share of computing; links attest in order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from glia.errors import MalformedParticle
from glia.graph.ids import ModelId, PrefixKey, ProfileId, WindowId, genesis_prefix
from glia.graph.link import LinkKind, check_link, parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from p2p.attesting import links_that_hold, num_attested, relayed
from p2p.deciding import DELAY_SHARE, LEAST_S, Patience, budget_s, is_worth_asking
from tests.builders import MODEL, TINY, make_chain

CHAIN = make_chain(60)
KEYS = [genesis_prefix(MODEL, TINY.profile_id), *CHAIN.keys]
SIGNERS = [Signer(bytes([n]) * 32) for n in range(3)]
NOW_S = 1000.0


@given(
    st.floats(0.5, 600.0),
    st.integers(2, 400),
    st.lists(st.floats(0.0, 5.0), max_size=300),
)
def test_what_a_fetch_costs_beyond_what_it_saved_is_bounded(
    compute_s: float, num_windows: int, gaps: list[float]
) -> None:
    """Windows arrive after these gaps, as shares of what computing one takes, until it is over."""
    window_s = compute_s / num_windows
    patience = Patience(NOW_S, compute_s, window_s)
    now_s, num_arrived = NOW_S, 0
    for gap in gaps[:num_windows]:
        if now_s + gap * window_s >= patience.deadline_s:
            now_s = patience.deadline_s
            break
        now_s += gap * window_s
        patience.arrived(now_s)
        num_arrived += 1
        assert patience.deadline_s > now_s
    lost_s = now_s - NOW_S - num_arrived * window_s
    num_turns = 1 + (now_s - NOW_S) / budget_s(compute_s)
    # the first turn, the last one, and of each in between less than one window is not counted
    assert lost_s <= 2 * budget_s(compute_s) + num_turns * window_s


def test_nothing_at_all_costs_one_turn() -> None:
    for compute_s in (0.1, 1.0, 8.0, 100.0):
        patience = Patience(NOW_S, compute_s, compute_s / 100)
        waited_s = patience.deadline_s - NOW_S
        assert waited_s <= max(LEAST_S, DELAY_SHARE * compute_s) + 1e-9
        patience.arrived(NOW_S + waited_s / 2)
        assert patience.deadline_s <= NOW_S + waited_s + budget_s(compute_s)


def test_windows_that_come_as_fast_as_they_are_computed_are_taken_to_the_end() -> None:
    patience = Patience(NOW_S, 10.0, 0.1)
    for step in range(1, 101):
        now_s = NOW_S + step * 0.099
        assert now_s < patience.deadline_s
        patience.arrived(now_s)
    slow = Patience(NOW_S, 10.0, 0.1)
    now_s = NOW_S
    while now_s < slow.deadline_s:
        slow.arrived(now_s)
        now_s += 0.15
    assert slow.deadline_s <= NOW_S + 2.0


def test_a_look_up_is_worth_what_it_takes() -> None:
    assert not is_worth_asking(LEAST_S)
    assert is_worth_asking(LEAST_S * 1.01)
    assert budget_s(0.1) == LEAST_S
    assert budget_s(10.0) == DELAY_SHARE * 10.0


@st.composite
def signed(draw: st.DrawFn) -> list[tuple[int, int, bytes]]:
    """Links of several neurons, as (before, windows, bytes); some with a bit turned over."""
    found = []
    for number in range(draw(st.integers(0, 6))):
        before = draw(st.integers(0, 59))
        end = draw(st.integers(before + 1, 60))
        (claim, *_) = claims(CHAIN.records[:end], before)
        link = sign_link(draw(st.sampled_from(SIGNERS)), claim, number, 1).encoding
        if draw(st.booleans()):
            found.append((claim.num_before, claim.num_windows, link))
        else:
            at = draw(st.integers(0, len(link) - 1))
            bad = link[:at] + bytes([link[at] ^ 1]) + link[at + 1 :]
            found.append((0, 0, bad))
    return found


@given(signed(), st.integers(1, 60))
def test_what_is_attested_is_covered_by_links_that_hold(
    said: list[tuple[int, int, bytes]], num: int
) -> None:
    hold, may = links_that_hold([data for _, _, data in said], CHAIN.records[:num], KEYS, NOW_S)
    good = [(before, end) for before, end, _ in said if end]
    spans = [(link.claim.num_before, link.claim.num_windows) for link in hold]
    assert sorted(spans) == sorted(each for each in good if each[1] <= num)
    beyond = [(link.claim.num_before, link.claim.num_windows) for link in may]
    assert sorted(beyond) == sorted(each for each in good if each[0] < num < each[1])
    covered = {at for before, end in spans for at in range(before, end)}
    attested = num_attested(hold, 0)
    assert set(range(attested)) <= covered
    assert attested not in covered or attested == num


@given(signed(), st.integers(0, 60))
def test_what_is_relayed_can_be_published(
    said: list[tuple[int, int, bytes]], num_here: int
) -> None:
    links = [parse_link(data) for _, end, data in said if end]
    assume(num_here)
    named, kept = relayed(CHAIN.records[:50], num_here, links)
    assert len(named) >= min(num_here, 50)
    assert all(link.claim.num_windows <= len(named) for link in kept)
    assert all(link.claim.num_before < num_here for link in kept)
    ends = {link.claim.num_windows for link in kept}
    assert len(named) in {min(num_here, 50), *ends}


@given(st.integers(0, 59), st.integers(1, 60), st.integers(0, 8))
def test_a_link_holds_where_it_would_if_its_windows_were_walked(
    before: int, end: int, changed: int
) -> None:
    assume(before < end)
    right = claims(CHAIN.records[:end], before)[0]
    name = bytes([changed]) * 32
    wrong = [
        {},
        {"kind": LinkKind.SPLICE},
        {"model_id": ModelId(name)},
        {"profile_id": ProfileId(name)},
        {"tip": WindowId(name)},
        {"prefix_key": PrefixKey(name)},
        {"base": WindowId(name)},
        {"num_before": right.num_before + 1},
        {"num_windows": right.num_windows - 1},
    ][changed]
    claim = replace(right, **wrong)  # type: ignore[arg-type]
    try:
        link = sign_link(SIGNERS[0], claim, 1, 1)
    except ValueError:
        return
    hold, may = links_that_hold([link.encoding], CHAIN.records, KEYS, NOW_S)
    try:
        span = CHAIN.records[claim.num_before : claim.num_windows]
        check_link(claim, KEYS[claim.num_before], span)
    except MalformedParticle:
        assert not hold
        assert not may
    else:
        assert hold == [link]


def test_a_link_that_is_said_often_counts_once() -> None:
    (claim, *_) = claims(CHAIN.records, 0)
    link = sign_link(SIGNERS[0], claim, 1, 1)
    assert links_that_hold([link.encoding] * 128, CHAIN.records, KEYS, NOW_S) == ([link], [])


def test_links_of_another_chain_or_time_do_not_hold() -> None:
    other = make_chain(60, seed=1)
    (claim, *_) = claims(other.records, 0)
    foreign = sign_link(SIGNERS[0], claim, 1, 1).encoding
    (mine, *_) = claims(CHAIN.records, 0)
    late = sign_link(SIGNERS[0], mine, 1, int(NOW_S) + 1000).encoding
    assert links_that_hold([foreign, late, b"", b"x"], CHAIN.records, KEYS, NOW_S) == ([], [])
