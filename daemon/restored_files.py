"""What is restored, on its way to its place: staged in a directory, committed by one rename."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from daemon.paths import Paths
from daemon.telling import Told
from daemon.whole_file import write_private
from glia.errors import BadCheckpoint, BadRequest, StoreBroken
from glia.graph.checkpoint import MAX_CHECKPOINT_BYTES
from glia.store.files import sync_directory

_STATE = "soul.json"


def finish_restoring(paths: Paths) -> None:
    """Go on with what was committed, if a crash came between; what was not is removed.

    Raises: StoreBroken, StoreFull.
    """
    committed = paths.restoring
    try:
        shutil.rmtree(_partial(paths), ignore_errors=True)
        if not committed.is_dir():
            return
        paths.conversations.mkdir(mode=0o700, exist_ok=True)
        for file in sorted(committed.glob("*.conv")):
            os.replace(file, paths.conversations / file.name)
        sync_directory(paths.conversations)
        state = committed / _STATE
        if state.exists():
            os.replace(state, paths.soul_state)
            sync_directory(paths.data_dir)
        committed.rmdir()
        sync_directory(paths.data_dir)
    except OSError as error:
        raise StoreBroken(
            f"{committed}: {error.strerror}", hint="gliad stop, then gliad start goes on with it"
        ) from error


def stage(paths: Paths, files: dict[str, bytes], state: bytes, told: Told) -> None:
    """Have these files, and the state of Souls, moved to their places from now on.

    Args:
        files: of conversations, by name.
        told: called with how many are written, of how many.
    Raises: StoreBroken; then nothing has changed.
    """
    partial = _partial(paths)
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        for done, (name, data) in enumerate(files.items(), 1):
            write_private(partial / f"{name}.conv", data)
            told(done, len(files))
        write_private(partial / _STATE, state)
        sync_directory(partial)
        os.rename(partial, paths.restoring)
        sync_directory(paths.data_dir)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StoreBroken(
            f"{partial}: {error.strerror}: nothing is restored", hint="df -h; free some space"
        ) from error


def read_checkpoint(path: Path) -> bytes:
    """All of it. Raises: BadRequest, BadCheckpoint (too large)."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_CHECKPOINT_BYTES:
                raise BadCheckpoint("no checkpoint is as large as that")
            return file.read(MAX_CHECKPOINT_BYTES + 1)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint="gliad checkpoint --to FILE") from error


def _partial(paths: Paths) -> Path:
    return paths.restoring.with_name(f"{paths.restoring.name}.partial")
