"""Domains of groups on this node: their salts, and the windows on both sides of where they begin.

The only one of gliad's parts that gives group secrets to the code that names windows. Engines
and clients speak of a group by its id, and of a domain by where it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from glia.errors import NotFound
from glia.graph.domain import Domain, Salt
from glia.graph.group import Epoch, GroupId, GroupSecret, domain_prefix
from glia.graph.ids import PrefixKey, next_prefix, short
from glia.graph.member import Keys
from glia.graph.tokens import pack_tokens
from glia.graph.window import WindowRecord


class Named(Protocol):
    """A group, as it is called here."""

    @property
    def group_id(self) -> GroupId: ...
    @property
    def name(self) -> str: ...


class Groups(Protocol):
    """The groups that a node is in. For any thread."""

    def all(self) -> Sequence[Named]:
        """Every one."""

    def named(self, text: str) -> Named:
        """By its name here, or how its id begins. Raises: NotFound, BadRequest (ambiguous)."""

    def keys(self, group: GroupId) -> Keys | None:
        """Its secret and epochs; None where this node is not in it."""

    def is_in(self, group: GroupId) -> bool:
        """Whether this node is in it, and is not leaving it now."""


class NoGroups:
    """Those of a node that is in none."""

    def all(self) -> Sequence[Named]:
        """See Groups."""
        return ()

    def named(self, text: str) -> Named:
        """See Groups."""
        raise NotFound(f"this node is in no group {text!r}", hint="gliad group list")

    def keys(self, group: GroupId) -> Keys | None:
        """See Groups."""
        return None

    def is_in(self, group: GroupId) -> bool:
        """See Groups."""
        return False


def name_of(groups: Groups, group: GroupId) -> str:
    """What a group is called here; its id in hex where this node is not in it."""
    return next((each.name for each in groups.all() if each.group_id == group), group.hex())


def epochs_of(groups: Groups) -> list[tuple[GroupId, Sequence[Epoch]]]:
    """What ciphertexts at rest are opened with, and sealed, of each group."""
    found = ((each.group_id, groups.keys(each.group_id)) for each in groups.all())
    return [(group, keys.epochs) for group, keys in found if keys is not None]


class Domains:
    """For any thread."""

    def __init__(self, groups: Groups | None = None) -> None:
        """Args: groups: None where this node is in none."""
        self._groups = groups or NoGroups()

    def salt(self, domain: Domain) -> Salt:
        """What windows of the domain are named with. Raises: NotFound (not a group of ours)."""
        secret = self._secret_of(domain.group)
        if secret is None:
            raise NotFound(
                f"this node is not in group {short(domain.group)}", hint="gliad group list"
            )
        return Salt(domain.group, domain.start, secret, domain.end)

    def has(self, group: GroupId) -> bool:
        """Whether what is said to the group now is in its domain."""
        return self._groups.is_in(group)

    def next_key(self, before: PrefixKey, record: WindowRecord) -> PrefixKey | None:
        """The prefix key of a window, from that of the one before it.

        None where a domain begins with it whose secret is gone.
        """
        root = before if record.root is None else self.salted(before, record.root.group)
        return None if root is None else next_prefix(root, pack_tokens(record.tokens))

    def salted(self, before: PrefixKey, group: GroupId) -> PrefixKey | None:
        """What the prefix key of a domain's first window is made from; None as `next_key`."""
        secret = self._secret_of(group)
        return None if secret is None else domain_prefix(before, secret)

    def _secret_of(self, group: GroupId) -> GroupSecret | None:
        keys = self._groups.keys(group)
        return None if keys is None else keys.secret
