"""Where the domain of a group begins in a chain, and the names from there on.

The first window that is not wholly public is the first of the domain. What it follows is salted,
once, with the group's secret; so from there on its names are the group's alone, and those before
it are everybody's (DESIGN C17, section 4). What is private behind the group's span goes on from
its names. See spec/15-group.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from glia.graph.group import GroupId, GroupSecret, domain_block, domain_prefix, domain_window
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.graph.window import DomainRoot


@dataclass(frozen=True, slots=True)
class Domain:
    """As it may be told: no secret is in it.

    Attributes:
        start: the position of its first window, a multiple of block_size.
        end: the position up to which the group may read it; None: all that follows.
    """

    group: GroupId
    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Salt:
    """A domain with its group's secret."""

    group: GroupId
    start: int
    secret: GroupSecret = field(repr=False)
    end: int | None = None

    def is_own(self, end: int) -> bool:
        """Whether a window that ends there is this node's alone: some of it is not the group's."""
        return self.end is not None and end > self.end

    def root(self, after: WindowId) -> DomainRoot:
        """What its first window is to be known by, if it follows this one."""
        return DomainRoot(self.group, after)

    def window(self, before: WindowId) -> WindowId:
        """What the first window names as the one before it."""
        return domain_window(before, self.secret)

    def block(self, before: BlockId) -> BlockId:
        """The same of a layer's first block."""
        return domain_block(before, self.secret)

    def key(self, before: PrefixKey) -> PrefixKey:
        """What the first window's prefix key is made from."""
        return domain_prefix(before, self.secret)


def domain_of(
    group: GroupId | None, num_public: int, block_size: int, num_shared: int | None = None
) -> Domain | None:
    """The domain of a log whose first `num_public` tokens are public, and the next ones a group's.

    None where no group may read what follows.
    Args: num_shared: tokens of both; None: all that follow are the group's.
    """
    if group is None:
        return None
    return Domain(group, num_public // block_size * block_size, num_shared)
