"""Which windows conversations reach: those whose prefix keys their logs have, or ever had.

A log says more than its tips: leaves are evicted before roots, and then no tip is there to
walk back from. And it is cheaper: a file of tokens instead of a record for each window.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from daemon.attachments import Layout
from glia.graph.chain import Get
from glia.graph.conversation import Turn
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, PrefixKey, WindowId, genesis_prefix, next_prefix
from glia.graph.privacy import Visibility
from glia.graph.publishable import public_tokens, shared_tokens
from glia.graph.tokens import pack_tokens

Salted = Callable[[PrefixKey, GroupId], PrefixKey | None]  # None: this node is not in it


def no_salt(before: PrefixKey, group: GroupId) -> PrefixKey | None:
    """Of a node that is in no group."""
    return None


class LogKeys:
    """The prefix keys of a log, while it grows and is cut.

    Args:
        within: keys that are looked for, each with those before it; others are not derived.
            None: all.
        salted: what a group's domain begins with.

    Attributes:
        ever: every key it has or had.
        ends: of these, those of its last window after each turn.
    """

    def __init__(
        self,
        model_id: ModelId,
        layout: Layout,
        within: Container[PrefixKey] | None = None,
        salted: Salted = no_salt,
    ) -> None:
        self._root = genesis_prefix(model_id, layout.profile_id)
        self._size = layout.block_size
        self._within, self._salted = within, salted
        self._num_public = 0
        self._group: GroupId | None = None
        self._tokens: list[int] = []
        self._keys: list[PrefixKey | None] = []
        self.ever: set[PrefixKey] = set()
        self.ends: set[PrefixKey] = set()

    @property
    def keys(self) -> list[PrefixKey]:
        """Of its whole windows now, up to the first that is not looked for."""
        return [key for key in self._keys if key is not None]

    @property
    def _domain_start(self) -> int:
        return self._num_public // self._size * self._size

    def apply(self, turn: Turn) -> None:
        """The log goes on with a turn."""
        del self._tokens[turn.keep :]
        del self._keys[turn.keep // self._size :]
        self._tokens += turn.tokens
        self._label(turn)
        for start in range(
            len(self._keys) * self._size, len(self._tokens) - self._size + 1, self._size
        ):
            self._keys.append(self._next(start))
        if self._keys and self._keys[-1] is not None:
            self.ends.add(self._keys[-1])

    def _label(self, turn: Turn) -> None:
        """How many leading tokens are public now, and whose the next ones are."""
        if turn.keep <= self._num_public:  # else the group's span is kept, or a part of it
            said = [(m.start, m.end, m.visibility) for m in turn.messages]
            spans = [(0, turn.keep, Visibility.PUBLIC), *said]
            self._num_public = public_tokens(spans)
            self._group = turn.group if shared_tokens(spans) > self._num_public else None

    def _next(self, start: int) -> PrefixKey | None:
        before = self._keys[-1] if self._keys else self._root
        if before is not None and self._group is not None and start == self._domain_start:
            before = self._salted(before, self._group) or before  # of a group that was left: plain
        if before is None:
            return None
        key = next_prefix(before, pack_tokens(self._tokens[start : start + self._size]))
        if self._within is not None and key not in self._within:
            return None
        self.ever.add(key)
        return key


def keys_ever(
    model_id: ModelId,
    layouts: Iterable[Layout],
    turns: Sequence[Turn],
    within: Container[PrefixKey] | None = None,
    salted: Salted = no_salt,
) -> set[PrefixKey]:
    """Every prefix key that a conversation has or had, under each of these layouts."""
    logs = read_logs(model_id, layouts, turns, within, salted)
    return {key for log in logs for key in log.ever}


def read_logs(
    model_id: ModelId,
    layouts: Iterable[Layout],
    turns: Sequence[Turn],
    within: Container[PrefixKey] | None = None,
    salted: Salted = no_salt,
) -> list[LogKeys]:
    """A conversation's keys, under each of these layouts."""
    logs = [LogKeys(model_id, layout, within, salted) for layout in layouts]
    for log in logs:
        for turn in turns:
            log.apply(turn)
    return logs


def layouts_of(tips: Iterable[WindowId], get: Get) -> set[Layout]:
    """Those of the tips that are still there."""
    records = map(get, tips)
    return {Layout(r.profile_id, len(r.tokens)) for r in records if r is not None}
