"""Tells a service manager how far gliad is (systemd's sd_notify), where one started it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_VARIABLE = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"


class Notifier:
    """Owns the manager's socket; its name is taken out of the environment that engines get."""

    def __init__(self) -> None:
        self._address = os.environ.pop(_VARIABLE, "")

    def tell(self, state: str) -> None:
        """Say it, if anybody listens."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, suppress(OSError):
            sock.settimeout(1.0)
            sock.sendto(state.encode(), address)
