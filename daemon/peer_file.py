"""peers.json: what is known of peers, from one run of gliad to the next."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from daemon.aside import next_aside
from daemon.network_config import is_peer_address, peer_of
from glia.store.files import sync_directory
from p2p.host import Address, PeerId
from p2p.ledger import Ledger, PeerEntry

_MAX_BYTES = 16 * 1024 * 1024
_VERSION = 1
_log = logging.getLogger("gliad.peers")

Addresses = Mapping[PeerId, Sequence[Address]]


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    peers: dict[str, PeerEntry]
    addresses: dict[str, list[str]]


class PeerFile:
    """One file, written whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def load(self, ledger: Ledger) -> Addresses:
        """Put what is in the file into the ledger. Returns: where peers can be dialled.

        A damaged file is set aside, with a warning, and nothing is known.
        """
        try:
            with open(
                os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb"
            ) as file:
                data = file.read(_MAX_BYTES + 1)
            content = _decode(data)
            ledger.restore({peer: asdict(entry) for peer, entry in content.peers.items()})
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            self._set_aside(error)
            return {}
        self._written = data
        return {
            PeerId(peer): [Address(each) for each in addresses]
            for peer, addresses in content.addresses.items()
        }

    def encode(self, ledger: Ledger, addresses: Addresses) -> bytes:
        """What `save` is to write."""
        return msgspec.json.encode(
            {"version": _VERSION, "peers": ledger.snapshot(), "addresses": addresses}
        )

    def save(self, data: bytes) -> None:
        """Replace the file, unless it is so already. Blocking. Raises: OSError."""
        if data == self._written:
            return
        partial = self._path.with_name(f"{self._path.name}.partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(partial, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self._path)
        sync_directory(self._path.parent)
        self._written = data

    def _set_aside(self, error: Exception) -> None:
        place = next_aside(self._path)
        _log.warning("%s cannot be read (%s): it is kept as %s", self._path, error, place.name)
        try:
            os.replace(self._path, place)
        except OSError as problem:
            _log.warning("%s cannot be set aside: %s", self._path, problem)


def _decode(data: bytes) -> _Content:
    """Raises: ValueError (msgspec's errors are such)."""
    if len(data) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    content = msgspec.json.decode(data, type=_Content)
    if content.version != _VERSION:
        raise ValueError(f"of version {content.version}")
    for peer, addresses in content.addresses.items():
        for each in addresses:
            if not is_peer_address(each) or peer_of(each) != peer:
                raise ValueError(f"not an address of {peer}: {each}")
    return content
