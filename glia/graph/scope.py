"""What a capability allows, in which group, until when; and what is within what.

See spec/14-capability.md. `glia.graph.claims` writes it down.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from glia.graph.group import GroupId
from glia.graph.ids import ModelId

MAX_ROOTS = 8


class Op(IntFlag):
    """What may be done. RELAY: be told of all that is shown, to keep and serve it without a key."""

    FETCH = 1
    ANNOUNCE = 2
    DELEGATE = 4
    RELAY = 8


MAX_OPS = 15  # all of them


@dataclass(frozen=True)
class Scope:
    """What a token allows. None stands for no limit.

    Attributes:
        audience: the group: at all its servers; or one server's peer key.
        epoch: the group's when it was issued.
        roots: look-up keys of the chains that it is for.
    """

    group: GroupId
    audience: bytes
    ops: Op
    epoch: int
    not_before_s: int
    expires_s: int
    model_id: ModelId | None = None
    roots: frozenset[bytes] | None = None
    bytes_per_hour: int | None = None

    def is_within(self, other: Scope) -> bool:
        """Whether it allows nothing that the other does not. A partial order."""
        return (
            self.group == other.group
            and other.audience in (self.audience, other.group)
            and self.ops & other.ops == self.ops
            and self.epoch <= other.epoch
            and other.not_before_s <= self.not_before_s
            and self.expires_s <= other.expires_s
            and other.model_id in (None, self.model_id)
            and (other.roots is None or (self.roots is not None and self.roots <= other.roots))
            and _is_at_most(self.bytes_per_hour, other.bytes_per_hour)
        )

    def allows(self, op: Op, model_id: ModelId, root: bytes | None = None) -> bool:
        """Whether one thing may be done. Args: root: a chain's look-up key, where it is known."""
        return (
            op in self.ops
            and self.model_id in (None, model_id)
            and (self.roots is None or root in self.roots)
        )


def _is_at_most(rate: int | None, most: int | None) -> bool:
    return most is None or (rate is not None and rate <= most)
