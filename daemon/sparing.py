"""L2 is told what it must not evict: windows of conversations that nobody could compute again.

That is usually nothing. It changes when conversations do, and when engines attach with
another class or models come and go.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from daemon.attachments import Attachments, Computable
from daemon.conversations import Conversations
from daemon.memory import Memory
from daemon.mending import Kept
from daemon.models_registry import ModelsRegistry
from daemon.past import Past
from daemon.reach import keys_ever
from daemon.reproducible import find_unreproducible
from glia.errors import StoreBroken
from glia.graph.ids import WindowId

_AGAIN_S = 3600.0  # models' files are the user's: they may go without a word
_FAILED_AGAIN_S = 60.0
_AT_ONCE = 32  # conversations: whoever ends the node does not wait for all
_log = logging.getLogger("gliad.sparing")


@dataclass(frozen=True, slots=True)
class _Looked:
    """A conversation that was looked at: what it was, and what of it cannot be had again."""

    kept: Kept
    bad: frozenset[WindowId]


class Sparing:
    """The one that tells it.

    Attributes:
        spared: what L2 was told last; None while that is not known.
        told: set once L2 was told something: where nothing is known, to spare all.
    """

    def __init__(
        self,
        memory: Memory,
        conversations: Conversations,
        registry: ModelsRegistry,
        attachments: Attachments,
    ) -> None:
        self._memory = memory
        self._conversations = conversations
        self._registry = registry
        self._attachments = attachments
        self._computable: frozenset[Computable] | None = None
        self._num_changes = 0  # of models
        self._looked: dict[str, _Looked] = {}
        self._good_tips: set[WindowId] = set()
        self._wanted = trio.Event()
        self.spared: frozenset[WindowId] | None = None
        self.told = trio.Event()

    def wake(self) -> None:
        """A conversation was made, has grown or is gone."""
        self._wanted.set()

    def models_changed(self) -> None:
        """An engine has attached, or a model may have come or gone."""
        self._num_changes += 1
        self._computable = None
        self._wanted.set()

    async def run(self) -> None:
        """Keep it told, for ever."""
        while True:
            self._wanted = trio.Event()
            again_s = _AGAIN_S
            try:
                await self._look()
            except Exception as error:  # then L2 keeps what it was told before
                _log.warning("what L2 must keep is not known: %r", error)
                again_s = _FAILED_AGAIN_S
                if self.spared is None:
                    await trio.to_thread.run_sync(self._memory.store.spare, None)
            self.told.set()  # not where gliad ends in the middle: L2 is told nothing yet
            with trio.move_on_after(again_s) as waiting:
                await self._wanted.wait()
            if waiting.cancelled_caught:
                self._computable = None

    async def _look(self) -> None:
        computable = self._computable
        if computable is None:
            computable = await self._look_at_models()
        past = self._conversations.past(self._conversations.names())
        for name in self._looked.keys() - past.kept.keys():
            del self._looked[name]
        changed = [
            name
            for name, (kept, _) in past.kept.items()
            if name not in self._looked or self._looked[name].kept is not kept
        ]
        for start in range(0, len(changed), _AT_ONCE):
            names = changed[start : start + _AT_ONCE]
            await trio.to_thread.run_sync(self._look_at, past, names, computable)
        self._good_tips &= {tip for name in past.kept for tip in past.tips(name)}
        spared = frozenset[WindowId]().union(*(looked.bad for looked in self._looked.values()))
        if spared != self.spared:
            await trio.to_thread.run_sync(self._memory.store.spare, spared)
            self.spared = spared

    async def _look_at_models(self) -> frozenset[Computable]:
        seen = self._num_changes
        models = await trio.to_thread.run_sync(self._registry.known)
        computable = await trio.to_thread.run_sync(self._attachments.computable, models)
        if self._num_changes == seen:  # else this is old already, and asked for anew
            self._computable = computable
        self._looked.clear()
        self._good_tips.clear()
        return computable

    def _look_at(self, past: Past, names: Sequence[str], computable: frozenset[Computable]) -> None:
        """For a worker thread."""
        get = self._memory.records.get_now
        good = set(self._good_tips)
        for name in names:
            before, kept = self._looked.get(name), past.kept[name][0]
            if before is not None and before.kept.head.begin != kept.head.begin:
                before = None  # another one of that name
            bad = set(before.bad) if before is not None else set()
            seen = set(before.kept.head.tips) if before is not None else set()
            tips = [tip for tip in kept.head.tips if tip not in seen]
            is_kept = kept.head.tip is not None and all(get(tip) is not None for tip in tips)
            starts = tips if is_kept else [*tips, *self._left_of(past, name)]
            find_unreproducible(starts, get, computable, good, bad)
            self._looked[name] = _Looked(kept, frozenset(bad))
            self._good_tips.update(tip for tip in tips if tip in good)

    def _left_of(self, past: Past, name: str) -> list[WindowId]:
        """What is stored of chains whose tips are not, found by their tokens."""
        records = self._memory.records
        model_id = past.model_id(name)
        try:
            turns = past.turns(name)
        except StoreBroken as error:  # one damaged file is no reason to give up the others
            _log.warning("what of it L2 must keep is not known: %s", error)
            return []
        layouts, salted = self._attachments.layouts(model_id), self._memory.records.domains.salted
        keys = keys_ever(model_id, layouts, turns, salted=salted)
        return [window_id for key in keys for window_id in records.find(key)]
