"""A node's groups: what is granted, renewed, rotated and revoked, and kept on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from daemon import group_changes as changes
from daemon.group_file import EpochRow, GroupRow, MemberRow
from daemon.groups import Groups
from glia.errors import (
    BadRequest,
    MalformedParticle,
    NotFound,
    NotPermitted,
    QuotaExceeded,
)
from glia.graph.capability import parse_chain
from glia.graph.claims import PeerKey
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, short
from glia.graph.member import parse_card
from glia.graph.scope import Op
from p2p.host import PeerId
from p2p.peer_key import key_of, peer_of
from tests.group_parts import ALL, NOW_S, Clock, groups_of, peer_named
from tests.vectors.make import seed

HOUR_S, DAY_S = 3600, 86400
MODEL = ModelId(seed("a model", 32))


class World:
    """Nodes, and what they hand to each other."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock = directory, Clock()
        self.nodes = {name: self.node(name) for name in ("ada", "bob", "cyd")}
        self.group = self.nodes["ada"].create("friends").group_id

    def node(self, name: str) -> Groups:
        return groups_of(self.directory, name, self.clock)

    def grant(self, name: str, ops: Op = Op.FETCH, giver: str = "ada", **limits: object) -> None:
        """By the neuron's name, as somebody would who knows that."""
        card = parse_card(self.nodes[name].card())
        row = MemberRow(int(ops), int(self.clock()), neuron=card.neuron, **limits)  # type: ignore[arg-type]
        self.nodes[giver].grant(self.group, row)

    def renew(self, name: str, giver: str = "ada") -> int:
        """As over the network. Returns: how many grants there were."""
        grants = self.nodes[giver].grants_for(parse_card(self.nodes[name].card()))
        for each in grants:
            self.nodes[name].take(each)
        return len(grants)

    def serves(self, server: str, who: str, capability: bytes | None = None) -> bool:
        """Whether a node would answer another that shows what it has."""
        try:
            shown = capability or self.nodes[who].capability(self.group)
            scope = self.nodes[server].check(self.group, shown, peer_named(who))
        except NotPermitted:
            return False
        return Op.FETCH in scope.ops

    def row(self, name: str) -> GroupRow:
        return self.nodes[name].row(self.group)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.spec(49)
def test_a_member_reads_what_a_stranger_does_not(world: World) -> None:
    world.grant("bob")
    assert world.renew("bob") == 1
    assert world.renew("cyd") == 0
    ada, bob, cyd = (world.nodes[name] for name in ("ada", "bob", "cyd"))
    assert bob.keys(world.group) == ada.keys(world.group)
    assert bob.secret_of(world.group) == ada.secret_of(world.group) is not None
    assert (cyd.keys(world.group), cyd.secret_of(world.group)) == (None, None)
    assert world.serves("ada", "bob")
    assert world.serves("bob", "ada")
    with pytest.raises(NotFound):
        cyd.capability(world.group)
    stolen = bob.capability(world.group)
    assert not world.serves("ada", "cyd", stolen)
    assert not world.serves("cyd", "bob")
    assert not world.serves("ada", "bob", b"rubbish")


def test_a_capability_is_renewed_and_ends(world: World) -> None:
    """The same one for half its life, as servers remember it; then another."""
    world.grant("bob")
    world.renew("bob")
    first = world.nodes["bob"].capability(world.group)
    world.clock.now_s += HOUR_S / 2 - 1
    world.renew("bob")
    assert world.nodes["bob"].capability(world.group) == first
    world.clock.now_s += 2
    world.renew("bob")
    second = world.nodes["bob"].capability(world.group)
    assert second != first
    world.clock.now_s += HOUR_S + 120
    with pytest.raises(NotPermitted, match="is over") as refused:
        world.nodes["bob"].capability(world.group)
    assert refused.value.hint
    assert not world.serves("ada", "bob", second)
    world.renew("bob")
    assert world.serves("ada", "bob")


@pytest.mark.fault("F30")
@pytest.mark.spec(49)
def test_whoever_is_removed_gets_no_new_epoch_and_is_served_no_longer(world: World) -> None:
    for name in ("bob", "cyd"):
        world.grant(name)
        world.renew(name)
    old = world.nodes["bob"].capability(world.group)
    before = world.row("ada").epochs
    members = [each for each in world.row("ada").members if each.peer == key_of(peer_named("bob"))]
    world.nodes["ada"].change(world.group, lambda row, now_s: changes.revoked(row, members, now_s))
    assert not world.serves("ada", "bob", old)
    assert world.serves("cyd", "bob", old), "who has not asked yet cannot know"
    assert world.renew("cyd") == 1
    assert not world.serves("cyd", "bob", old)
    assert world.serves("ada", "cyd")
    assert world.renew("bob") == 0
    assert world.row("ada").epochs[:-1] == before
    newest = world.row("ada").keys.current
    assert world.row("cyd").keys.current == newest
    assert newest not in world.row("bob").keys.epochs
    world.grant("bob")
    assert world.renew("bob") == 1
    assert world.serves("ada", "bob")
    assert world.row("bob").keys.current == newest


def test_a_revoked_token_is_no_longer_good(world: World) -> None:
    world.grant("bob")
    world.renew("bob")
    shown = world.nodes["bob"].capability(world.group)
    token_id = parse_chain(shown).tokens[0].claims.token_id
    epoch = world.row("ada").epochs[-1].number
    world.nodes["ada"].change(
        world.group, lambda row, now_s: changes.revoked_token(row, token_id, now_s)
    )
    assert not world.serves("ada", "bob", shown)
    assert world.row("ada").epochs[-1].number == epoch


@pytest.mark.fault("F30")
def test_a_node_that_hears_nothing_serves_nobody_after_a_day(world: World) -> None:
    world.grant("bob", until_s=NOW_S + 30 * DAY_S)
    world.renew("bob")
    world.clock.now_s += DAY_S + 1
    world.nodes["ada"].change(world.group, changes.relisted)
    shown = world.nodes["ada"].capability(world.group)
    assert not world.serves("bob", "ada", shown)
    world.renew("bob")
    assert world.serves("bob", "ada", shown)


@pytest.mark.fault("F26")
def test_a_clock_that_was_ahead_for_a_while(world: World) -> None:
    """What was signed then is of the future: it is signed anew, and taken, when that is seen."""
    world.grant("bob")
    world.clock.now_s += 30 * DAY_S
    world.nodes["ada"].change(world.group, changes.relisted)
    world.renew("bob")
    assert world.serves("ada", "bob")
    world.clock.now_s -= 30 * DAY_S - 60
    assert not world.serves("bob", "ada")
    world.nodes["ada"].change(world.group, changes.relisted)
    world.renew("bob")
    assert world.serves("ada", "bob")
    assert world.serves("bob", "ada")


def test_a_member_has_so_many_keys_and_no_more(world: World) -> None:
    """All of them are revoked with it: none is forgotten before."""
    world.grant("bob")
    row, card = world.row("ada"), parse_card(world.nodes["bob"].card())
    keys = [PeerKey(seed(f"key {n}", 32)) for n in range(17)]
    for key in keys[:16]:
        row, member = changes.met(row, replace(card, peer=key), NOW_S)
    assert member is not None
    with pytest.raises(QuotaExceeded):
        changes.met(row, replace(card, peer=keys[16]), NOW_S)
    assert changes.met(row, replace(card, peer=keys[0]), NOW_S)[1] == structs.replace(
        member, peer=keys[0]
    )
    gone = changes.revoked(row, row.members, NOW_S)
    assert changes.list_of(gone).holders == set(keys[:16])


def test_an_end_that_was_set_is_kept_and_a_new_epoch_begins_then(world: World) -> None:
    world.grant("bob", until_s=NOW_S + 600)
    world.renew("bob")
    assert parse_chain(world.nodes["bob"].capability(world.group)).scope.expires_s == NOW_S + 600
    world.clock.now_s += 601
    assert world.renew("bob") == 0
    world.nodes["ada"].change(world.group, changes.expired)
    assert world.row("ada").members == ()
    assert world.row("ada").epochs[-1].number == 2
    world.nodes["ada"].change(world.group, changes.expired)
    assert world.row("ada").epochs[-1].number == 2
    with pytest.raises(BadRequest, match="over already"):
        changes.granted(world.row("ada"), MemberRow(1, 0, bytes(32), until_s=5), 10)


def test_an_epoch_lasts_a_week(world: World) -> None:
    rotate = changes.rotated_if_due
    assert world.nodes["ada"].change(world.group, rotate).epochs[-1].number == 1
    world.clock.now_s += 7 * DAY_S
    assert world.nodes["ada"].change(world.group, rotate).epochs[-1].number == 2
    world.grant("bob")
    world.renew("bob")
    assert [each.number for each in world.row("bob").epochs] == [1, 2]
    world.clock.now_s += 14 * DAY_S
    assert world.nodes["bob"].change(world.group, rotate).epochs[-1].number == 2
    for _ in range(70):
        world.nodes["ada"].change(world.group, changes.rotated)
    assert [each.number for each in world.row("ada").epochs] == [*range(1, 73)]
    world.renew("bob")
    bob, ada = world.row("bob"), world.row("ada")
    keys = [[each.key for each in row.epochs] for row in (bob, ada)]
    assert keys[0] == [*keys[1][:2], *keys[1][-64:]], "what is of the first can be taken back"
    for _ in range(960):
        ada = changes.rotated(ada, 0)
    assert [each.number for each in ada.epochs] == [*range(9, 1033)]
    assert len(msgspec.msgpack.encode(ada)) < 2**18  # of the 2**20 that a group's file may have


def test_limits_of_a_grant_are_in_the_capability(world: World) -> None:
    world.grant("bob", Op.FETCH | Op.ANNOUNCE, model_id=MODEL)
    world.renew("bob")
    scope = parse_chain(world.nodes["bob"].capability(world.group)).scope
    assert (scope.ops, scope.model_id) == (Op.FETCH | Op.ANNOUNCE, MODEL)
    assert scope.allows(Op.FETCH, MODEL)
    assert not scope.allows(Op.FETCH, ModelId(bytes(32)))
    world.grant("bob")
    world.renew("bob")
    assert len(world.row("ada").members) == 1
    assert parse_chain(world.nodes["bob"].capability(world.group)).scope.model_id is None


def test_a_rate_is_in_the_capability_and_handed_on_no_higher(world: World) -> None:
    world.grant("bob", Op.FETCH | Op.DELEGATE, bytes_per_hour=5000)
    world.renew("bob")
    for asked, given in ((None, 5000), (9000, 5000), (100, 100)):
        world.grant("cyd", giver="bob", bytes_per_hour=asked)
        world.renew("cyd", giver="bob")
        scope = parse_chain(world.nodes["cyd"].capability(world.group)).scope
        assert scope.bytes_per_hour == given


@pytest.mark.spec(49)
def test_a_delegate_hands_on_less_and_revokes_nothing(world: World) -> None:
    world.grant("bob", Op.FETCH | Op.DELEGATE)
    world.renew("bob")
    with pytest.raises(NotPermitted):
        world.grant("cyd", Op.ANNOUNCE, giver="bob")
    world.grant("cyd", Op.FETCH, giver="bob")
    assert world.renew("cyd", giver="bob") == 1
    chain = parse_chain(world.nodes["cyd"].capability(world.group))
    assert len(chain.tokens) == 2
    assert world.serves("ada", "cyd")
    assert world.row("cyd").keys == world.row("ada").keys
    with pytest.raises(NotPermitted) as refused:
        world.nodes["bob"].change(world.group, lambda row, now_s: changes.revoked(row, [], now_s))
    assert f"gliad group show {world.row('bob').name} says" in str(refused.value.hint)
    for change in (
        changes.rotated,
        lambda row, now_s: changes.revoked_token(row, bytes(16), now_s),
    ):
        with pytest.raises(NotPermitted):
            world.nodes["bob"].change(world.group, change)
    with pytest.raises(NotPermitted):
        world.grant("ada", Op.FETCH, giver="cyd")
    members = list(world.row("ada").members)
    world.nodes["ada"].change(world.group, lambda row, now_s: changes.revoked(row, members, now_s))
    assert not world.serves("ada", "cyd"), "what was handed on goes with what it was handed on from"


def test_an_issuer_stays_one_whatever_it_is_granted(world: World) -> None:
    world.grant("bob", Op.FETCH | Op.DELEGATE)
    world.renew("bob")
    world.grant("ada", giver="bob")
    with pytest.raises(BadRequest, match="needs no grant"):
        world.renew("ada", giver="bob")
    assert world.row("ada").is_issuer
    assert world.nodes["ada"].change(world.group, changes.rotated).epochs[-1].number == 2


def test_a_grant_that_is_handed_over_lasts_a_day(world: World) -> None:
    world.grant("bob")
    card = parse_card(world.nodes["bob"].card())
    world.nodes["ada"].homes = lambda: ["/ip4/127.0.0.1/tcp/1/p2p/x"] * 9
    handed = world.nodes["ada"].grant_for(world.group, card, DAY_S)
    row = world.nodes["bob"].take(handed)
    assert parse_chain(row.chain).scope.expires_s == NOW_S + DAY_S
    assert len(row.homes) == 8
    with pytest.raises(MalformedParticle):
        world.nodes["cyd"].take(handed)
    with pytest.raises(NotFound):
        world.nodes["ada"].grant_for(world.group, parse_card(world.nodes["cyd"].card()), DAY_S)
    offline = groups_of(world.directory, "bob", world.clock, offline=True)
    assert offline.take(handed).group_id == world.group
    assert offline.secret_of(world.group) == world.nodes["ada"].secret_of(world.group)
    for asked in (offline.card, lambda: offline.capability(world.group)):
        with pytest.raises(NotPermitted) as refused:
            asked()
        assert refused.value.hint
    with pytest.raises(NotPermitted):
        offline.check(world.group, b"", peer_named("ada"))


def test_old_and_contradicting_grants_change_nothing(world: World) -> None:
    world.grant("bob")
    card = parse_card(world.nodes["bob"].card())
    (first,) = world.nodes["ada"].grants_for(card)
    world.clock.now_s += 60
    world.nodes["ada"].change(world.group, changes.rotated)
    world.renew("bob")
    held = world.row("bob")
    with pytest.raises(BadRequest, match="older"):
        world.nodes["bob"].take(first)
    assert world.row("bob") == held
    row = world.row("ada")
    unsigned = tuple(structs.replace(each, key=bytes(32), statement=b"") for each in row.epochs)
    for liar in (
        structs.replace(row, epochs=unsigned),
        structs.replace(
            row,
            epochs=tuple(structs.replace(each, statement=b"") for each in row.epochs),
            secret=bytes(32),
        ),
    ):
        world.nodes["ada"]._write(changes.stated(liar))
        with pytest.raises(BadRequest, match="signed two"):
            world.renew("bob")
    assert world.row("bob") == held


def test_a_list_is_not_rolled_back_by_a_later_grant(world: World) -> None:
    """A delegate that was not told yet hands on an older list."""
    world.grant("bob", Op.FETCH | Op.DELEGATE)
    world.renew("bob")
    world.grant("cyd")
    world.renew("cyd")
    world.nodes["ada"].change(
        world.group, lambda row, now_s: changes.revoked_token(row, bytes(16), now_s)
    )
    world.renew("cyd")
    newest = changes.list_of(world.row("cyd")).sequence
    world.clock.now_s += 10
    world.grant("cyd", giver="bob")
    world.renew("cyd", giver="bob")
    assert changes.list_of(world.row("bob")).sequence < newest
    assert changes.list_of(world.row("cyd")).sequence == newest


def test_a_delegate_that_was_revoked_gives_no_keys(world: World) -> None:
    """It would make the epoch that its members encrypt under, and read on."""
    for name in ("bob", "cyd"):
        world.grant(name, Op.FETCH | Op.DELEGATE)
        world.renew(name)
    bob = world.nodes["bob"]
    (gone,) = (row for row in world.row("ada").members if row.peer == bob._rights.peer_key)
    world.nodes["ada"].change(world.group, lambda row, now_s: changes.revoked(row, [gone], now_s))
    world.renew("cyd")
    held = world.row("cyd")
    bob.change(
        world.group,
        lambda row, _: structs.replace(
            row,
            epochs=(*row.epochs, EpochRow(9, b"9" * 32, NOW_S, bytes(64))),
            revoked=held.revoked,
        ),
    )
    world.grant("cyd", giver="bob")
    world.clock.now_s += 10
    with pytest.raises(MalformedParticle, match="did not begin"):
        world.renew("cyd", giver="bob")
    bob.change(world.group, lambda row, _: structs.replace(row, epochs=row.epochs[:-1]))
    with pytest.raises(BadRequest, match="revoked") as refused:
        world.renew("cyd", giver="bob")
    assert refused.value.hint
    assert world.row("cyd") == held


@pytest.mark.fault("F30")
@pytest.mark.spec(49)
def test_a_delegate_invents_no_epoch_and_no_secret(world: World) -> None:
    """Its members would encrypt under a key of its making, or look nothing up that others have."""
    world.grant("bob", Op.FETCH | Op.DELEGATE)
    world.renew("bob")
    world.grant("cyd", giver="bob")
    true = world.row("bob")
    mine = true.epochs[-1].statement
    for invented in (
        {"epochs": (*true.epochs, EpochRow(2, b"2" * 32, NOW_S, mine))},
        {"epochs": (EpochRow(1, b"1" * 32, NOW_S, mine),)},
        {"epochs": (structs.replace(true.epochs[0], number=2),)},
        {"secret": b"s" * 32},
    ):
        world.nodes["bob"]._write(structs.replace(true, **invented))
        with pytest.raises(MalformedParticle, match="did not begin"):
            world.renew("cyd", giver="bob")
        assert world.nodes["cyd"].keys(world.group) is None
    world.nodes["bob"]._write(true)
    assert world.renew("cyd", giver="bob") == 1


@pytest.mark.fault("F30")
def test_an_issuer_that_signs_two_keys_of_an_epoch_is_told_of(world: World) -> None:
    """As one does whose node was put back to an older state; what came first is kept."""
    world.grant("bob")
    old = world.row("ada")
    held_by_ada = world.nodes["ada"].change(world.group, changes.rotated)
    world.renew("bob")
    held = world.row("bob")
    world.nodes["ada"]._write(old)
    world.nodes["ada"].change(world.group, changes.rotated)
    world.clock.now_s += HOUR_S
    with pytest.raises(BadRequest, match="signed two keys for epoch 2") as refused:
        world.renew("bob")
    ids = [short(world.row(name).keys.current.epoch_id) for name in ("ada", "bob")]
    assert all(each in refused.value.message for each in ids)
    assert refused.value.hint
    assert world.row("bob") == held
    bob, card = world.nodes["bob"], parse_card(world.nodes["bob"].card())
    (grant,) = world.nodes["ada"].grants_for(card)
    assert bob.trouble(world.group) == ""
    with pytest.raises(BadRequest):
        bob.renew(grant)
    assert "two keys for epoch 2" in bob.trouble(world.group)
    world.nodes["ada"]._write(held_by_ada)
    bob.renew(world.nodes["ada"].grants_for(card)[0])
    assert bob.trouble(world.group) == ""


def test_epochs_of_before_statements_are_signed_or_taken_anew(world: World) -> None:
    """An issuer signs them at the next start; a member has them with its next grant."""
    world.grant("bob", Op.FETCH | Op.DELEGATE)
    world.grant("cyd", giver="ada")
    world.renew("bob")
    for name in ("ada", "bob"):
        row = world.row(name)
        bare = tuple(structs.replace(each, statement=b"") for each in row.epochs)
        invented = EpochRow(7, b"7" * 32, NOW_S)
        bare = bare if row.is_issuer else (*bare, invented)
        world.nodes[name]._write(structs.replace(row, epochs=bare))
        world.nodes[name] = world.node(name)
    assert all(each.statement for each in world.row("ada").epochs)
    world.grant("cyd", giver="bob")
    card = parse_card(world.nodes["cyd"].card())
    with pytest.raises(NotPermitted, match="must be renewed"):
        world.nodes["bob"].grant_for(world.group, card, HOUR_S)
    world.clock.now_s += HOUR_S
    world.renew("bob")
    assert world.row("bob").keys == world.row("ada").keys
    assert world.renew("cyd", giver="bob") == 1


def test_the_secrets_of_a_group_that_is_left_are_overwritten(world: World, tmp_path: Path) -> None:
    world.grant("bob")
    world.renew("bob")
    bob = world.nodes["bob"]
    (file,) = (path for path in tmp_path.rglob(f"{world.group.hex()}.group") if "bob" in str(path))
    (kept := tmp_path / "the same bytes on disk").hardlink_to(file)
    secret = bob.secret_of(world.group)
    assert secret is not None
    assert secret in kept.read_bytes()
    bob.leave(world.group)
    assert not file.exists()
    assert not any(kept.read_bytes())


def test_a_group_that_is_left_while_it_is_renewed_stays_left(world: World) -> None:
    world.grant("bob")
    world.renew("bob")
    bob = world.nodes["bob"]
    world.clock.now_s += HOUR_S
    (grant,) = world.nodes["ada"].grants_for(parse_card(bob.card()))

    class Slow:
        """A lock that is had when the group was left."""

        def __enter__(self) -> None:
            bob._lock = real
            bob.leave(world.group)

        def __exit__(self, *_: object) -> None:
            pass

    real, bob._lock = bob._lock, Slow()  # type: ignore[assignment]
    with pytest.raises(NotFound):
        bob.renew(grant)
    assert bob.all() == []


def test_renewing_takes_only_groups_that_were_joined(world: World) -> None:
    world.grant("bob")
    (grant,) = world.nodes["ada"].grants_for(parse_card(world.nodes["bob"].card()))
    world.nodes["bob"].renew(grant)
    assert world.nodes["bob"].all() == []
    world.nodes["bob"].take(grant)
    world.nodes["bob"].renew(grant)
    assert [row.name for row in world.nodes["bob"].all()] == ["friends"]


# -- names, files, limits --------------------------------------------------------------------


def test_names(world: World) -> None:
    ada, bob = world.nodes["ada"], world.nodes["bob"]
    assert ada.named("friends").group_id == world.group
    assert ada.named(world.group.hex()[:8]).group_id == world.group
    with pytest.raises(BadRequest, match="already"):
        ada.create("friends")
    for text in ("foes", world.group.hex()[:3]):
        with pytest.raises(NotFound):
            ada.named(text)
    mine = bob.create("friends")
    world.grant("bob")
    world.renew("bob")
    assert bob.named("friends").group_id == mine.group_id
    assert bob.named(f"friends-{world.group.hex()[:6]}").group_id == world.group


def test_files_are_for_their_owner_and_read_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world.grant("bob")
    world.renew("bob")
    for name in ("ada", "bob"):
        directory = world.directory / name / "groups"
        (path,) = directory.iterdir()
        assert (directory.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
        again = world.node(name)
        assert again.all() == world.nodes[name].all()
        assert again.keys(world.group) == world.nodes[name].keys(world.group)
        world.nodes[name] = again
    assert world.serves("ada", "bob")
    row = world.row("ada")
    assert row.seed is not None
    secrets = [row.secret, row.seed, *(each.key for each in row.epochs)]
    for text in (caplog.text, repr(row), repr(world.row("bob")), repr(row.epochs)):
        assert not any(each.hex() in text or repr(each) in text for each in secrets)
    world.nodes["bob"].leave(world.group)
    assert list((world.directory / "bob" / "groups").iterdir()) == []
    assert world.nodes["bob"].secret_of(world.group) is None
    assert not world.serves("bob", "ada")
    assert world.node("bob").all() == []


def test_a_file_that_others_can_read_is_refused(world: World) -> None:
    (path,) = (world.directory / "ada" / "groups").iterdir()
    path.chmod(0o640)
    with pytest.raises(BadRequest, match="open to other users") as refused:
        world.node("ada")
    assert "chmod 600" in str(refused.value.hint)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-3],
        lambda data: data.replace(b"friends", b"frien\xffs"),
        lambda data: msgspec.msgpack.encode({"name": "friends"}),
        lambda data: msgspec.msgpack.encode(msgspec.msgpack.decode(data) | {"version": 2}),
        lambda data: msgspec.msgpack.encode(msgspec.msgpack.decode(data) | {"issuer": bytes(32)}),
        lambda data: msgspec.msgpack.encode(msgspec.msgpack.decode(data) | {"epochs": []}),
        lambda data: msgspec.msgpack.encode(msgspec.msgpack.decode(data) | {"revoked": b""}),
    ],
)
def test_a_damaged_file_is_set_aside(world: World, spoil: Callable[[bytes], bytes]) -> None:
    (path,) = (world.directory / "ada" / "groups").iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    assert world.node("ada").all() == []
    assert [each.suffix for each in path.parent.iterdir()] == [".bad"]


def test_limits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.groups.MAX_GROUPS", 2)
    world.nodes["ada"].create("second")
    with pytest.raises(QuotaExceeded):
        world.nodes["ada"].create("third")
    monkeypatch.setattr("daemon.group_changes.MAX_MEMBERS", 1)
    world.grant("bob")
    with pytest.raises(QuotaExceeded):
        world.grant("cyd")
    world.grant("bob", Op.ANNOUNCE)
    row = world.row("ada")
    full = frozenset(PeerKey(seed(f"gone {n}", 32)) for n in range(1025))
    with pytest.raises(QuotaExceeded, match="list is full"):
        changes._with_list(row, with_holders(row, full), int(world.clock()))


def with_holders(row: GroupRow, holders: frozenset[PeerKey]) -> changes.Revoked:
    said = changes.list_of(row)
    return changes.Revoked(said.issuer, said.sequence, said.time_s, 1, said.tokens, holders)


def test_whom_a_card_means(world: World) -> None:
    """By neuron or by peer; the rest is learned from the card."""
    card = parse_card(world.nodes["bob"].card())
    by_peer = MemberRow(ops=int(ALL), granted_s=NOW_S, peer=card.peer)
    row = changes.granted(world.row("ada"), by_peer, NOW_S)
    row, member = changes.met(row, card, NOW_S)
    assert member is not None
    assert (member.neuron, member.holders) == (card.neuron, (card.peer,))
    assert changes.met(row, card, NOW_S) == (row, member)
    assert changes.met(row, parse_card(world.nodes["cyd"].card()), NOW_S) == (row, None)
    by_neuron = MemberRow(ops=1, granted_s=NOW_S + 5, neuron=card.neuron)
    again = changes.granted(row, by_neuron, NOW_S)
    assert len(again.members) == 1
    assert (again.members[0].peer, again.members[0].ops) == (card.peer, 1)


@pytest.mark.parametrize("text", ["", "12D3KooW", "Qm" + "a" * 44, "0OIl" * 12, "1" * 300])
def test_what_is_no_peer_id_with_a_key(text: str) -> None:
    assert key_of(PeerId(text)) is None
    assert key_of(peer_of(PeerKey(bytes(32)))) == bytes(32)


def test_a_group_that_nobody_knows(world: World) -> None:
    unknown = GroupId(bytes(32))
    with pytest.raises(NotFound):
        world.nodes["ada"].change(unknown, changes.rotated)
    with pytest.raises(NotPermitted):
        world.nodes["ada"].check(unknown, b"", peer_named("bob"))
