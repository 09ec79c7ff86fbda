"""Links of others: bounded by key, by signer and in all; found by key and by base."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from glia.graph.ids import PrefixKey, WindowId, genesis_window
from glia.graph.link import Claim, Link, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from glia.store.heard import Heard
from tests.builders import MODEL, TINY, make_chain

SIGNERS = [Signer(bytes([number]) * 32) for number in range(20)]
CHAIN = make_chain(20)
SPAN, TIP = claims(CHAIN.records, 0)


def sign(claim: Claim, signer: int = 0, sequence: int = 1) -> Link:
    return sign_link(SIGNERS[signer], claim, sequence, 1_800_000_000)


def to(number: int) -> Claim:
    """A claim about another tip and key."""
    name = number.to_bytes(32, "big")
    return replace(TIP, tip=WindowId(name), prefix_key=PrefixKey(name))


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    made = Heard(tmp_path / "heard", max_links=80)
    yield made
    made.close()


def test_a_link_is_found_by_its_key_and_by_its_base(heard: Heard) -> None:
    span, tip = sign(SPAN), sign(TIP, 1)
    assert heard.add(span)
    assert heard.add(tip)
    assert not heard.add(tip)
    keys = [CHAIN.keys[3], CHAIN.keys[19], CHAIN.keys[15]]
    assert heard.find(keys) == [tip, span]
    assert heard.find([]) == heard.find([CHAIN.keys[3]]) == []
    assert heard.next_links(genesis_window(MODEL, TINY.profile_id)) == [span]
    assert heard.next_links(CHAIN.window_ids[15]) == [tip]
    assert heard.next_links(CHAIN.tip) == []
    assert heard.stats().num_links == 2


def test_a_key_has_the_first_eight_neurons_whoever_comes_late(heard: Heard) -> None:
    links = [sign(TIP, number) for number in range(12)]
    assert [heard.add(link) for link in links] == [True] * 8 + [False] * 4
    assert set(heard.find([CHAIN.keys[19]])) == set(links[:8])
    assert heard.stats().num_refused == 4
    assert heard.stats().num_dropped == 0
    assert heard.add(sign(SPAN, 11))  # another key has room


def test_of_one_neuron_a_key_has_the_newest_two(heard: Heard) -> None:
    links = [sign(TIP, 0, sequence) for sequence in range(5)]
    for link in (links[1], links[2], links[4]):
        assert heard.add(link)
    assert set(heard.find([CHAIN.keys[19]])) == {links[2], links[4]}
    assert not heard.add(links[0])
    assert not heard.add(links[1])  # was pushed out by newer ones
    assert heard.add(links[3])
    assert set(heard.find([CHAIN.keys[19]])) == {links[3], links[4]}
    assert len(heard.next_links(TIP.base)) == 2
    assert heard.stats().num_links == 2


def test_in_all_the_oldest_go_first_also_after_a_restart(tmp_path: Path) -> None:
    heard = Heard(tmp_path / "heard", max_links=10)
    links = [sign(to(number), number % 20) for number in range(270)]
    for number, link in enumerate(links):
        assert heard.add(link)
        if number == 13:
            heard.close()
            heard = Heard(tmp_path / "heard", max_links=10)
    keys = [link.claim.prefix_key for link in links]
    assert heard.find(keys) == links[260:]
    assert heard.stats().num_links == 10
    assert set(heard.next_links(TIP.base)) == set(links[260:])
    heard.close()


def test_what_was_wrong_is_dropped(heard: Heard) -> None:
    links = [sign(to(number)) for number in range(5)]
    for link in links:
        heard.add(link)
    heard.drop([links[1], links[3], sign(TIP)])
    assert heard.find([link.claim.prefix_key for link in links]) == [links[0], links[2], links[4]]
    assert heard.stats().num_links == 3
    for number in range(10, 100):
        assert heard.add(sign(to(number), number % 20))
    assert heard.stats().num_links == 80


def test_a_damaged_one_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "heard"
    heard = Heard(path)
    for number in range(30):
        heard.add(sign(to(number)))
    heard.close()
    (path / "index" / "CURRENT").unlink()
    heard = Heard(path)
    assert heard.stats().num_links == 0
    assert heard.stats().num_set_aside == 1
    assert heard.add(sign(TIP))
    heard.close()


def test_a_flood_of_strangers_pushes_out_none_whose_word_is_taken(heard: Heard) -> None:
    believed = [sign(to(number), 0) for number in range(5)]
    for link in believed:
        assert heard.add(link, is_taken=True)
    for number in range(300):
        assert heard.add(sign(to(1000 + number), 1 + number % 19))
    assert heard.find([link.claim.prefix_key for link in believed]) == believed
    assert heard.stats().num_links == 80


def test_a_signer_with_many_links_pushes_out_its_own(heard: Heard) -> None:
    others = [sign(to(number), 1 + number % 5) for number in range(30)]
    for link in others:
        assert heard.add(link)
    flood = [sign(to(1000 + number), 0) for number in range(300)]
    for link in flood:
        assert heard.add(link, is_taken=True)
    assert heard.find([link.claim.prefix_key for link in others]) == others
    assert heard.find([link.claim.prefix_key for link in flood]) == flood[250:]
    heard.drop(flood[255:])
    for number in range(45):
        assert heard.add(sign(to(2000 + number), 6 + number % 10))
    assert heard.add(flood[0])  # it has five of them, and counts as others do again
    assert heard.find([link.claim.prefix_key for link in flood]) == [flood[0], *flood[250:255]]


def test_where_all_are_of_those_whose_word_is_taken_the_oldest_go(heard: Heard) -> None:
    links = [sign(to(number), number % 20) for number in range(100)]
    for link in links:
        assert heard.add(link, is_taken=True)
    assert heard.find([link.claim.prefix_key for link in links]) == links[20:]
