"""Runs a command that can open no socket but Unix sockets: whoever tries to is killed.

A seccomp filter, which all processes of the command inherit. Exit code 77 where the kernel
or the machine does not let us set one.

    python only_unix.py COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

UNAVAILABLE = 77

_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
_SOCKET = {"x86_64": 41, "aarch64": 198}
_UNIX = 1


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def set_filter() -> bool:
    """Whether it holds from now on, for this process and its children."""
    number = _SOCKET.get(platform.machine())
    if number is None:
        return False
    program = b"".join(
        (
            _instruction(_LOAD, 0, 0, _NUMBER),
            _instruction(_JUMP_EQUAL, 0, 3, number),
            _instruction(_LOAD, 0, 0, _FIRST_ARGUMENT),
            _instruction(_JUMP_EQUAL, 1, 0, _UNIX),
            _instruction(_RETURN, 0, 0, _KILL),
            _instruction(_RETURN, 0, 0, _ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return libc.prctl(_SET_SECCOMP, _FILTER, header, 0, 0) == 0


if __name__ == "__main__":
    if not set_filter():
        sys.exit(UNAVAILABLE)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 -- what a test says
