"""Which windows go when conversations are forgotten. Blocking: for worker threads.

own        what their logs reach, and ever reached
shared     of those, what other conversations' logs reach: it stays
published  for good, of those: it stays
exclusive  the rest: it goes, and whatever stored windows continue it
failed     what continues the end of a log and is in nobody's: turns that failed computed it
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from daemon.attachments import Layout
from daemon.domains import Domains
from daemon.past import Past
from daemon.reach import LogKeys, keys_ever, no_salt, read_logs
from daemon.telling import Told
from glia.errors import StoreBroken
from glia.graph.chain import Find, Get
from glia.graph.conversation import Message, Turn
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, PrefixKey, WindowId
from glia.graph.privacy import Visibility

Children = Callable[[WindowId], Iterable[WindowId]]
Layouts = Mapping[ModelId, Collection[Layout]]
_log = logging.getLogger("gliad.forgetting")


@dataclass(frozen=True, slots=True)
class AllTiers:
    """Windows, in whatever tier they are.

    Attributes:
        is_final: whether it is published for good.
        domains: of groups, that some are in.
    """

    find: Find
    get: Get
    children: Children
    is_final: Callable[[WindowId], bool]
    domains: Domains = field(default_factory=Domains)


class Doomed:
    """Windows that are to go, unless somebody turns out to reach them.

    Args:
        layouts: those of every model that this is about.
        near: prefix keys of these windows and of those before them; None: of any there may be.
        domains: of groups, that some are in.

    Attributes:
        key_of: the windows, with their prefix keys as far as those are known.
        num_saved: how many were among them and stay, as somebody reaches them.
        num_published: how many stay as they are published for good.
    """

    def __init__(
        self, layouts: Layouts, near: set[PrefixKey] | None, domains: Domains | None = None
    ) -> None:
        self.key_of: dict[WindowId, PrefixKey | None] = {}
        self.num_saved = self.num_published = 0
        self._layouts = layouts
        self._near = near
        self._salted = (domains or Domains()).salted

    def add(self, window_id: WindowId, key: PrefixKey | None) -> None:
        """This one is to go."""
        self.key_of[window_id] = key
        if self._near is not None and key is not None:
            self._near.add(key)

    def add_children(
        self, window_id: WindowId, key: PrefixKey | None, tiers: AllTiers
    ) -> list[WindowId]:
        """What continues this one is to go. Returns: those that were not before."""
        added: list[WindowId] = []
        for child in tiers.children(window_id):
            if child in self.key_of:
                continue
            record, below = tiers.get(child), None
            if key is not None and record is not None:
                below = tiers.domains.next_key(key, record)
            self.add(child, below)
            added.append(child)
        return added

    def save_from(self, others: Past, told: Told) -> None:
        """What the logs of others have, or had, stays.

        A log that cannot be read, not even in part, holds up nothing: what it uses may go, and
        is computed again.
        """
        for done, name in enumerate(others.kept):
            if not self.key_of:  # forks of one trunk: the first of them saves it all
                return
            told(done, len(others.kept))
            if others.model_id(name) in self._layouts:
                try:
                    self._save(others.model_id(name), others.turns(name))
                except StoreBroken as error:
                    _log.error("what %s uses does not stay: %s", name, error)

    def save_prompt(
        self,
        model_id: ModelId,
        tokens: Sequence[int],
        num_public: int = 0,
        group: GroupId | None = None,
    ) -> None:
        """What a request under way has stays.

        Args: group: who may read what follows its public tokens.
        """
        said: tuple[Message, ...] = ()
        if group is not None:
            said = (
                Message("", None, 0, num_public, Visibility.PUBLIC),
                Message("", None, num_public, len(tokens), Visibility.AGGREGATE),
            )
        self._save(model_id, (Turn(0, 0, tuple(tokens), said, None, group),))

    def save(self, window_ids: Iterable[WindowId]) -> None:
        """These stay."""
        for name in window_ids:
            if name in self.key_of:
                del self.key_of[name]
                self.num_saved += 1

    def save_published(self, is_final: Callable[[WindowId], bool]) -> None:
        """What is published for good stays, and so does all before it, which is, too."""
        for name in list(filter(is_final, self.key_of)):
            del self.key_of[name]
            self.num_published += 1

    def _save(self, model_id: ModelId, turns: Sequence[Turn]) -> None:
        layouts = self._layouts.get(model_id, ())
        keys = keys_ever(model_id, layouts, turns, self._near, self._salted)
        if keys:
            self.save([name for name, key in self.key_of.items() if key in keys])


def doomed_with(
    targets: Past, others: Past, layouts: Layouts, tiers: AllTiers, told: Told
) -> Doomed:
    """What goes with these conversations. Raises: StoreBroken."""
    keys: set[PrefixKey] = set()
    ends: set[PrefixKey] = set()
    for name in targets.kept:
        for log in _logs(targets, name, layouts, tiers.domains):
            keys |= log.ever
            ends |= log.ends
    doomed = Doomed(layouts, set(keys), tiers.domains)
    for key in keys:
        for window_id in tiers.find(key):
            doomed.add(window_id, key)
    doomed.save_from(others, told)
    doomed.save_published(tiers.is_final)
    failed = Doomed(layouts, keys, tiers.domains)
    for key in ends:
        for window_id in tiers.find(key):
            if window_id not in doomed.key_of:  # else what continues it goes anyway
                failed.add_children(window_id, key, tiers)
    failed.save_from(others, told)
    failed.save_published(tiers.is_final)
    for window_id, known in failed.key_of.items():
        if known is not None:  # else it may be anybody's
            doomed.add(window_id, known)
    add_descendants(doomed, tiers)
    return doomed


def _logs(targets: Past, name: str, layouts: Layouts, domains: Domains) -> list[LogKeys]:
    """As a conversation's windows are named, or were: its group may have been left for a time."""
    model_id, turns = targets.model_id(name), targets.turns(name)
    own = layouts.get(model_id, set())
    logs = read_logs(model_id, own, turns, salted=domains.salted)
    if any(turn.group is not None for turn in turns):
        logs += read_logs(model_id, own, turns, salted=no_salt)
    return logs


def add_descendants(doomed: Doomed, tiers: AllTiers) -> None:
    """What continues windows that go has nothing to stand on: it goes, too."""
    pending = list(doomed.key_of)
    while pending:
        window_id = pending.pop()
        pending += doomed.add_children(window_id, doomed.key_of[window_id], tiers)
