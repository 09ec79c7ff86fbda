"""What conversations ever said, as their files are at one moment; for worker threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daemon.conversation_files import ConversationFiles, Kept
from glia.errors import UnknownConversation
from glia.graph.conversation import Turn
from glia.graph.ids import ModelId, WindowId


@dataclass(frozen=True)
class Past:
    """A snapshot of some conversations: what one says after it is not read.

    Attributes:
        kept: by name, what each file was, and its suffix.
    """

    files: ConversationFiles
    kept: Mapping[str, tuple[Kept, str]]

    def model_id(self, name: str) -> ModelId:
        """The model of one."""
        return self.kept[name][0].head.begin.model_id

    def tips(self, name: str) -> tuple[WindowId, ...]:
        """Every tip that one had."""
        return self.kept[name][0].head.tips

    def turns(self, name: str) -> tuple[Turn, ...]:
        """Every turn of one; none where it is gone since. Raises: StoreBroken."""
        kept, suffix = self.kept[name]
        try:
            return self.files.turns(name, kept, suffix)
        except UnknownConversation:
            return ()

    def log(self, name: str) -> bytes:
        """What one says now, packed tokens; nothing where it is gone. Raises: StoreBroken."""
        kept, suffix = self.kept[name]
        try:
            return bytes(self.files.read(name, kept, suffix).tokens)
        except UnknownConversation:
            return b""

    def since(self, before: Past) -> Past:
        """Those that were made or went on since."""
        changed = {
            name: kept
            for name, kept in self.kept.items()
            if name not in before.kept or before.kept[name][0] is not kept[0]
        }
        return Past(self.files, changed)

    def of_models(self, model_ids: frozenset[ModelId]) -> Past:
        """Those of these models."""
        return Past(
            self.files,
            {name: kept for name, kept in self.kept.items() if self.model_id(name) in model_ids},
        )
