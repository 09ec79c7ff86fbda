"""gliad's log: one file under the data dir, rotated. It never carries tokens or text of prompts."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from daemon.config import LogConfig
from glia.errors import StoreBroken

_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s"


class _PrivateFile(RotatingFileHandler):
    """Opens its file for its owner only, and follows no symlink."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")


def open_log(path: Path, config: LogConfig) -> logging.Handler:
    """Let the loggers below `gliad` write to `path`; close the handler in the end.

    Raises: StoreBroken.
    """
    try:
        handler = _PrivateFile(
            path, maxBytes=config.max_bytes, backupCount=config.num_files - 1, encoding="utf-8"
        )
    except OSError as error:
        raise StoreBroken(f"{path}: {error.strerror}") from error
    formatter = logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger("gliad")
    logger.setLevel(config.level.upper())
    logger.propagate = False
    logger.addHandler(handler)
    return handler


def close_log(handler: logging.Handler) -> None:
    """The opposite of `open_log`."""
    logging.getLogger("gliad").removeHandler(handler)
    with suppress(OSError):  # what a full disk refused is tried once more
        handler.close()
