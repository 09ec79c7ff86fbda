"""Values of groups that messages of the local API carry. No secret is among them."""

from __future__ import annotations

from msgspec import Struct

from glia.local.values import Name


class MemberValue(Struct, frozen=True):
    """Whom this node granted something.

    neuron, peer: who it is, "" while that is not known.
    ops: of fetch, announce, delegate, relay.
    model_id: hex; "": any model.
    granted_s, until_s: seconds since 1970, UTC; until_s None: until it is revoked.
    bytes_per_hour: what one server gives it at most; None: no limit.
    """

    ops: list[str]
    granted_s: int
    neuron: str = ""
    peer: str = ""
    model_id: str = ""
    until_s: int | None = None
    bytes_per_hour: int | None = None


class GroupValue(Struct, frozen=True):
    """A group that this node is in.

    role: issuer, member, or relay, which keeps and serves what it cannot read.
    epoch: the newest that is known here, 0 of a relay; epochs: how many are.
    ops: what this node may in it; expires_s: until when, None of the issuer.
    list_s: when the revocation list was signed that this node serves by, seconds since 1970;
        one that is older than a day serves nobody.
    num_revoked: holders and tokens on it.
    homes: where grants are renewed; none of the issuer.
    members: whom this node granted something, where one group was asked for; num_members: of
        them there are.
    trouble: why the last grant that came by itself was not taken; "": it was.
    """

    group: Name
    name: str
    role: str
    epoch: int
    epochs: int
    epoch_s: int
    ops: list[str]
    list_s: int
    num_revoked: int
    expires_s: int | None = None
    homes: list[str] = []
    num_members: int = 0
    members: list[MemberValue] = []
    trouble: str = ""
