"""Groups of real nodes on loopback: made, joined both ways, renewed, revoked, left."""

from __future__ import annotations

import stat

import pytest

from glia.client import Client
from glia.errors import BadRequest, NotFound, NotPermitted
from tests.gliad_parts import LOOPBACK, Gliad, gliads


def client(node: Gliad) -> Client:
    return Client.connect(node.data_dir)


@pytest.mark.spec(49)
def test_a_group_of_three_and_who_was_removed() -> None:
    """One asks for its grant, one is handed it; then one of them is removed."""
    with gliads(3) as (ada, bob, cyd):
        for node in (ada, bob, cyd):
            node("start", "--listen", LOOPBACK)
        home = ada.address
        assert cyd.address
        with client(ada) as by_ada, client(bob) as by_bob, client(cyd) as by_cyd:
            made = by_ada.create_group("friends")
            neuron = by_bob.identity().neuron.hex()
            by_ada.grant("friends", neuron)
            assert by_cyd.join_group(home) == []
            (joined,) = by_bob.join_group(home)
            assert (joined.group, joined.role, joined.homes) == (made.group, "member", [home])

            grant = by_ada.grant("friends", by_cyd.card(), expires_s=7 * 86400).grant
            assert by_cyd.join_group(f" {grant[:40]}\n{grant[40:]}")[0].name == "friends"
            for refused, call in (
                (BadRequest, lambda: by_bob.join_group(grant)),
                (NotPermitted, lambda: by_bob.rotate_group("friends")),
                (NotPermitted, lambda: by_bob.grant("friends", neuron)),
                (NotFound, lambda: by_bob.group("foes")),
                (BadRequest, lambda: by_ada.create_group("friends")),
                (NotFound, lambda: by_ada.revoke("friends", "ff" * 32)),
            ):
                with pytest.raises(refused) as why:
                    call()
                assert why.value.hint

            revoked = by_ada.revoke("friends", neuron[:12])
            assert (revoked.epoch, revoked.num_revoked) == (2, 1)
            assert by_cyd.join_group(home)[0].epoch == 2
            assert by_bob.join_group(home) == []
            assert by_bob.group("friends").epoch == 1
            by_cyd.leave_group("friends")
            assert by_cyd.groups() == []

        assert ada.json("status")["groups"][0]["epoch"] == 2
        for node in (ada, bob):
            directory = node.data_dir / "groups"
            modes = [
                stat.S_IMODE(each.stat().st_mode) for each in (directory, *directory.iterdir())
            ]
            assert modes == [0o700, 0o600]
        assert list((cyd.data_dir / "groups").iterdir()) == []
        assert stat.S_IMODE((cyd.data_dir / "box.key").stat().st_mode) == 0o600


def test_a_node_without_a_network_makes_groups_and_asks_nobody() -> None:
    with gliads(1) as (node,):
        node("start", "--offline")
        with client(node) as by_node:
            assert not (node.data_dir / "box.key").exists()
            assert by_node.create_group("mine").name == "mine"
            for call in (by_node.card, lambda: by_node.join_group("nobody")):
                with pytest.raises(NotPermitted) as refused:
                    call()
                assert refused.value.hint
        assert not (node.data_dir / "neuron.key").exists()
