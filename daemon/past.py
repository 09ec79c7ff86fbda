"""What conversations ever said, as their files are at one moment; for worker threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from daemon.conversation_files import ConversationFiles
from daemon.mending import Kept
from glia.errors import StoreBroken, UnknownConversation
from glia.graph.conversation import Turn
from glia.graph.ids import ModelId, WindowId

_T = TypeVar("_T")


@dataclass(frozen=True)
class Past:
    """A snapshot of some conversations: what one says after it is not read.

    Attributes:
        kept: by name, what each file was, and its suffix.
        mend: sets a file aside that turns out to be damaged; what is whole of it, None where
            nothing is. Raises: StoreBroken.
    """

    files: ConversationFiles
    kept: Mapping[str, tuple[Kept, str]]
    mend: Callable[[str, Kept], Kept | None]

    def model_id(self, name: str) -> ModelId:
        """The model of one."""
        return self.kept[name][0].head.begin.model_id

    def tips(self, name: str) -> tuple[WindowId, ...]:
        """Every tip that one had."""
        return self.kept[name][0].head.tips

    def turns(self, name: str) -> tuple[Turn, ...]:
        """Every turn of one; none where it is gone since. Raises: StoreBroken, as `mend`."""
        return self._read(self.files.turns, name, ())

    def log(self, name: str) -> bytes:
        """What one says now, packed tokens; nothing where it is gone. Raises: as `turns`."""
        return self._read(self._log, name, b"")

    def data(self, name: str) -> bytes:
        """The bytes of one's file, read and found whole; nothing where it is gone. Raises: as
        `turns`."""
        return self._read(self.files.data, name, b"")

    def _log(self, name: str, kept: Kept, suffix: str) -> bytes:
        return bytes(self.files.read(name, kept, suffix).tokens)

    def _read(self, read: Callable[[str, Kept, str], _T], name: str, nothing: _T) -> _T:
        kept, suffix = self.kept[name]
        try:
            try:
                return read(name, kept, suffix)
            except StoreBroken:
                mended = self.mend(name, kept)
            return read(name, mended, suffix) if mended is not None else nothing
        except UnknownConversation:
            return nothing

    def since(self, before: Past) -> Past:
        """Those that were made or went on since."""
        changed = {
            name: kept
            for name, kept in self.kept.items()
            if name not in before.kept or before.kept[name][0] is not kept[0]
        }
        return replace(self, kept=changed)
