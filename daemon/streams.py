"""Standard streams that were closed before we began: nothing that is opened later becomes one."""

from __future__ import annotations

import os
import sys


def open_closed() -> None:
    """What is said to a closed stderr goes nowhere; stdin is empty.

    A closed stdout can still not be written (EBADF), as what was asked for would be lost.
    """
    for fd, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
