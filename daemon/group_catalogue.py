"""What who relays is told of a group: names, places and aliases of what members are shown.

Without the model, and never to a member: it could open all that is shown, whatever it knew to
ask for.
"""

from __future__ import annotations

from collections.abc import Callable

from glia.errors import NotPermitted
from glia.graph.group import GroupId
from glia.graph.ids import WindowId
from glia.graph.scope import Op, Scope
from glia.store.group_index import GroupIndex
from glia.store.group_rows import GroupWindow
from p2p.group_relay import FIRST, MAX_ROW_LINKS, MAX_TIPS, Row, RowLink, Tips

MAX_ENCODING_BYTES = 56 * 1024  # of what fits a frame


class GroupCatalogue:
    """The Catalogue (p2p/group_relay.py) of one stream. What its peer may is checked each time.

    Args:
        scope: what the peer may have now. Raises: NotPermitted.
        is_here: whether a window's particles are.
    """

    def __init__(
        self,
        index: GroupIndex,
        group: GroupId,
        scope: Callable[[], Scope],
        is_here: Callable[[WindowId], bool],
    ) -> None:
        self._index, self._group, self._scope, self._is_here = index, group, scope, is_here

    def tips(self, after: bytes) -> Tips:
        """See Catalogue."""
        scope = self._current()
        if scope is None:
            return Tips(())
        found, last = self._index.tips(self._group, after, MAX_TIPS)
        names = tuple(row.name for row in found if self._may(scope, row))
        return Tips(names, last or FIRST)

    def row(self, name: WindowId) -> Row | None:
        """See Catalogue."""
        scope, row = self._current(), self._index.window(self._group, name)
        if scope is None or row is None or not self._may(scope, row):
            return None
        links = self._index.links(self._group, name)[:MAX_ROW_LINKS]
        return Row(
            row.num_windows,
            row.hold_until_s,
            row.alias,
            row.encoding,
            tuple(RowLink(each.num_before, each.base, each.sealed) for each in links),
        )

    def _current(self) -> Scope | None:
        try:
            scope = self._scope()
        except NotPermitted:
            return None
        return scope if Op.RELAY in scope.ops else None

    def _may(self, scope: Scope, row: GroupWindow) -> bool:
        fits = len(row.encoding) <= MAX_ENCODING_BYTES
        return fits and scope.allows(Op.RELAY, row.model_id) and self._is_here(row.name)
