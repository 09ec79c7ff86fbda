"""What the log may say of an exception that nobody expected."""

from __future__ import annotations

import traceback


def place_of(error: BaseException) -> str:
    """Its class and where it was raised: its message may quote what a client said."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
