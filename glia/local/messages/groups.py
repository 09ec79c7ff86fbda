"""Messages about groups: who may read what only some may."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.graph.scope import MAX_OPS
from glia.local.group_values import GroupValue, MemberValue
from glia.local.messages.base import Call, Reply
from glia.local.values import Name

MAX_GRANT_TEXT = 96 * 1024  # characters
MAX_WHO_TEXT = 1024
GroupText = Annotated[str, Meta(min_length=1, max_length=128)]
WhoText = Annotated[str, Meta(min_length=1, max_length=MAX_WHO_TEXT)]


class Groups(Call, frozen=True):
    """All groups that this node is in, by name, without their members. Reply: GroupsReply."""


class ShowGroup(Call, frozen=True):
    """One group, by its name or how its id begins. Reply: GroupsReply of the one."""

    group: GroupText


class GroupsReply(Reply, frozen=True):
    groups: list[GroupValue]


class CreateGroup(Call, frozen=True):
    """Make a group whose issuer this node is. Reply: GroupsReply of the one."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]


class RotateGroup(Call, frozen=True):
    """Begin a new epoch. Failed `not_permitted` where another node made the group.

    Reply: GroupsReply of the one.
    """

    group: GroupText


class LeaveGroup(Call, frozen=True):
    """Erase what is here of a group, then its secrets; what was said stays. Progress.

    Failed `conversation_busy` while something is answered in it. Reply: LeftReply.
    """

    group: GroupText


class LeftReply(Reply, frozen=True):
    """What was erased."""

    num_windows: int
    freed_bytes: int


class Card(Call, frozen=True):
    """What this node shows whoever is to grant it something. Reply: CardReply."""


class CardReply(Reply, frozen=True):
    """`card`: one line of text."""

    card: str


class JoinGroup(Call, frozen=True):
    """Become a member by a grant, or by asking whoever granted something for it.

    source: a grant's text, a peer's address, or its id or how that ends.
    Reply: GroupsReply of the groups that were joined, which may be none.
    """

    source: Annotated[str, Meta(min_length=1, max_length=MAX_GRANT_TEXT)]


class Grant(Call, frozen=True):
    """Grant somebody something, in place of what was granted before.

    who: a neuron's id, a peer's id or how that ends, or a card's text.
    ops: 1 fetch, 2 announce, 4 delegate, 8 relay, added up.
    expires_s: seconds until that ends; None: when it is revoked.
    bytes_per_hour: what one server gives it at most; None: no limit.
    """

    group: GroupText
    who: WhoText
    ops: Annotated[int, Meta(ge=1, le=MAX_OPS)] = 1
    model_id: Name | None = None
    expires_s: Annotated[int, Meta(ge=1, le=2**40)] | None = None
    bytes_per_hour: Annotated[int, Meta(ge=1, le=2**53)] | None = None


class GrantReply(Reply, frozen=True):
    """`grant`: its text, where a card was given; else "": the member asks for it."""

    member: MemberValue
    grant: str


class Revoke(Call, frozen=True):
    """Take back what was granted, and begin a new epoch; or take back one token.

    who: as in Grant, or a token's id in 32 hex digits. Reply: GroupsReply of the one.
    """

    group: GroupText
    who: WhoText
