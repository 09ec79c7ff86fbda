"""Who is at which conversation: at most one at a time answers in it, makes it, or forgets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from glia.errors import ConversationBusy
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, WindowId


@dataclass
class Running:
    """A request under way in a conversation. `model_id`: once it has an engine.

    tokens: prompt and answer, as far as it is.
    tainted_by: a window that does not hold, as was found meanwhile, and that it seems to use.
    num_public, group: leading public ones, and who may read what follows those.
    """

    tokens: list[int]
    model_id: ModelId | None = None
    tainted_by: WindowId | None = None
    num_public: int = 0
    group: GroupId | None = None


class Taken:
    """Names that somebody is at. Owned by the trio thread.

    Args:
        on_left: called with a name that is free again.

    Attributes:
        running: what is being answered, by name.
    """

    def __init__(self, on_left: Callable[[str], None]) -> None:
        self._on_left = on_left
        self._why: dict[str, str] = {}
        self.running: dict[str, Running] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._why

    def check(self, name: str) -> None:
        """Raises: ConversationBusy where somebody is at it."""
        if name in self._why:
            raise busy(name, self._why[name])

    @contextmanager
    def by(self, name: str, why: str) -> Iterator[None]:
        """Be the one at it. Args: why: as `is being made`. Raises: ConversationBusy."""
        self.check(name)
        self._why[name] = why
        try:
            yield
        finally:
            del self._why[name]
            self._on_left(name)

    @contextmanager
    def by_answer(self, name: str, running: Running) -> Iterator[None]:
        """Be the one that answers in it. Raises: ConversationBusy."""
        with self.by(name, "is being answered in"):
            self.running[name] = running
            try:
                yield
            finally:
                del self.running[name]


def busy(name: str, why: str) -> ConversationBusy:
    """The error that says why nobody else can be at it."""
    return ConversationBusy(
        f"{name} {why}", hint="ask again when that has ended: gliad ps shows what runs"
    )
