"""Whose word on K/V is taken, as a table; and who is who."""

from __future__ import annotations

import pytest

from daemon.network_config import NetworkConfig
from glia.errors import ConfigError
from p2p.accepting import Accept, Acquaintance, Policy, Standing, is_near
from p2p.host import PeerId
from p2p.ledger import Ledger, Trust
from p2p.neurons import Neurons
from tests.unit.test_config import config_of

OWN, FRIEND, LISTED, OTHER = (bytes([n]) * 32 for n in range(4))
A, B, C = PeerId("peer-a"), PeerId("peer-b"), PeerId("peer-c")


@pytest.mark.parametrize(
    ("trust", "is_banned", "policy", "takes"),
    [
        ("own", False, "any", True),
        ("own", False, "known", True),
        ("own", False, "own", True),
        ("own", True, "own", True),  # what this node computed itself
        ("known", False, "any", True),
        ("known", False, "known", True),
        ("known", False, "own", False),
        ("known", True, "any", False),
        ("known", True, "known", False),
        ("known", False, "lan", True),
        ("known", True, "lan", False),
        ("stranger", False, "lan", False),
        ("stranger", False, "any", True),
        ("stranger", False, "known", False),
        ("stranger", False, "own", False),
        ("stranger", True, "any", False),
    ],
)
def test_whose_word_is_taken(trust: Trust, is_banned: bool, policy: Policy, takes: bool) -> None:
    standing = Standing(trust, is_banned)
    assert Accept(policy, frozenset({LISTED})).takes(OTHER, standing) is takes
    assert Accept(policy, frozenset({LISTED})).takes(LISTED, standing) is True


def test_strangers_are_not_taken_unless_asked_for() -> None:
    assert NetworkConfig().accepted == Accept("lan")


@pytest.mark.parametrize(
    "remote_ip", ["127.0.0.1", "192.168.1.9", "10.0.0.1", "fe80::1%eth0", "::1"]
)
def test_peers_of_this_machine_and_its_lan_are_near(remote_ip: str) -> None:
    assert is_near(remote_ip)
    assert is_near("::ffff:192.168.1.9")


@pytest.mark.parametrize("remote_ip", ["", "::", "1.1.1.1", "2606:4700::1", "::ffff:1.1.1.1"])
def test_others_are_not(remote_ip: str) -> None:
    assert not is_near(remote_ip)


def test_who_is_near_counts_as_named_while_connected() -> None:
    ledger, near = Ledger(), {A}
    ledger.signs_as(A, FRIEND, 0.0)
    acquaintance = Acquaintance(ledger, OWN, [], Neurons(), near=lambda: near)
    assert acquaintance.standings()[FRIEND] == Standing("known")
    near.clear()
    assert FRIEND not in acquaintance.standings()


@pytest.mark.parametrize("policy", ["any", "lan", "known", "own"])
@pytest.mark.parametrize("trust", ["own", "known", "stranger"])
@pytest.mark.parametrize("is_banned", [False, True])
def test_what_named_peers_pass_on_is_as_good_as_theirs(
    policy: Policy, trust: Trust, is_banned: bool
) -> None:
    expected = policy in ("lan", "known") and trust != "stranger" and not is_banned
    assert Accept(policy).passes_on(trust, is_banned=is_banned) is expected


def test_in_a_network_with_a_key_all_are_named() -> None:
    ledger = Ledger()
    ledger.signs_as(A, FRIEND, 0.0)
    assert FRIEND not in Acquaintance(ledger, OWN, [], Neurons()).standings()
    with_key = Acquaintance(ledger, OWN, [], Neurons(), all_named=True)
    assert with_key.standings()[FRIEND] == Standing("known")


def test_a_neuron_is_what_the_best_of_its_peers_is() -> None:
    ledger = Ledger()
    known = Acquaintance(ledger, OWN, [A], Neurons())
    for peer, neuron in ((A, FRIEND), (B, FRIEND), (C, OTHER)):
        ledger.signs_as(peer, neuron, 0.0)
    assert known.standings()[FRIEND] == Standing("known")
    assert OTHER not in known.standings()
    ledger.trust(C, "known", 0.0)
    assert known.standings()[OTHER] == Standing("known")
    ledger.ban(B, True, 0.0)
    assert known.standings()[FRIEND] == Standing("known", is_banned=True)
    ledger.forget(C)
    assert OTHER not in known.standings()
    ledger.signs_as(C, OTHER, 0.0)
    ledger.ban(C, True, 0.0)
    assert known.standings()[OTHER] == Standing("stranger", is_banned=True)


def test_a_peer_that_signs_as_we_do_is_ours() -> None:
    ledger = Ledger()
    known = Acquaintance(ledger, OWN, [], Neurons())
    ledger.signs_as(A, OWN, 0.0)
    entry = ledger.entry(A)
    assert entry is not None
    assert known.trust_of(A, entry) == "own"
    assert known.standings() == {OWN: Standing("own")}


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("", Accept("lan")),
        ('accept = "known"', Accept("known")),
        ('accept = "any"', Accept("any")),
        ('accept = "own"', Accept("own")),
        ("accept = []", Accept("own")),
        (f'accept = ["{"aB" * 32}"]', Accept("own", frozenset({b"\xab" * 32}))),
    ],
)
def test_the_setting(tmp_path, text: str, accepted: Accept) -> None:  # type: ignore[no-untyped-def]
    assert config_of(tmp_path, f"[network]\n{text}\n").network.accepted == accepted


@pytest.mark.parametrize("text", ['"all"', "1", '["any"]', '["ab"]', "[1]"])
def test_what_the_setting_may_not_be(tmp_path, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match="accept"):
        config_of(tmp_path, f"[network]\naccept = {text}\n")
