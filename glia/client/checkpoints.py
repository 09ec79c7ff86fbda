"""Calls about a Soul: its checkpoints, and moving with them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from glia.client.caller import Caller, OnProgress
from glia.client.names import check_names
from glia.local import messages as m


class CheckpointCalls(Caller):
    """Checkpoints of this Body's Soul."""

    def checkpoint(
        self,
        path: str | os.PathLike[str],
        names: Sequence[str] = (),
        *,
        is_kept: bool = True,
        on_progress: OnProgress | None = None,
    ) -> m.CheckpointReply:
        """Write conversations (none named: all) to a file that their Soul alone can read.

        Args: is_kept: the file stays there, so a claim would appear beside it.
        Raises: BadRequest (no Soul here, or the file cannot be), UnknownConversation,
            ConversationMoved, QuotaExceeded (too large), StoreBroken.
        """
        check_names(*names)
        call = m.Checkpoint(self._id(), list(names), _absolute(path), is_kept)
        return self._call(call, m.CheckpointReply, on_progress)

    def restore(
        self,
        path: str | os.PathLike[str],
        names: Sequence[str] = (),
        *,
        secret: bytes | None = None,
        dry: bool = False,
        anyway: bool = False,
        on_progress: OnProgress | None = None,
    ) -> m.RestoreReply:
        """Have a checkpoint's conversations (none named: all) here: all of them, or none.

        Args:
            secret: the Soul's; None: this Body's own.
            dry: only say what would be.
            anyway: though it is known to be old, or another Body may go on with them.
        Raises: BadCheckpoint (another Soul's, altered), BadRequest (old, elsewhere, or something
            else has that name here), ConversationBusy, StoreBroken.
        """
        check_names(*names)
        call = m.Restore(self._id(), _absolute(path), list(names), secret, dry, anyway)
        return self._call(call, m.RestoreReply, on_progress)

    def moves(self) -> m.MovesReply:
        """What this Body knows of its Soul's moves."""
        return self._call(m.Moves(self._id()), m.MovesReply)

    def heed(self, path: str | os.PathLike[str]) -> m.MovesReply:
        """Let go what a claim says another Body has. Raises: BadCheckpoint, BadRequest."""
        return self._call(m.Heed(self._id(), _absolute(path)), m.MovesReply)


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(os.fspath(path))
