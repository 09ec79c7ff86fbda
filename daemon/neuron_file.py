"""neurons.json: what is known of neurons, from one run of gliad to the next."""

from __future__ import annotations

import logging
import os
from dataclasses import asdict
from pathlib import Path

import msgspec

from daemon.aside import next_aside
from daemon.models_registry import write_whole
from p2p.neurons import NeuronEntry, Neurons

_MAX_BYTES = 16 * 1024 * 1024
_VERSION = 1
_log = logging.getLogger("gliad.peers")


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    neurons: dict[str, NeuronEntry]


class NeuronFile:
    """One file, written whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""

    def load(self, neurons: Neurons) -> None:
        """Know what is in the file. A damaged one is set aside, with a warning."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                data = file.read(_MAX_BYTES + 1)
            neurons.restore(_decode(data))
            self._written = data
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            place = next_aside(self._path)
            _log.warning("%s cannot be read (%s): kept as %s", self._path, error, place.name)
            try:
                os.replace(self._path, place)
            except OSError as problem:
                _log.warning("%s cannot be set aside: %s", self._path, problem)

    def encode(self, neurons: Neurons) -> bytes:
        """What `save` is to write."""
        return msgspec.json.encode({"version": _VERSION, "neurons": neurons.snapshot()})

    def save(self, data: bytes) -> None:
        """Replace the file, unless it is so already. Blocking. Raises: StoreBroken."""
        if data != self._written:
            write_whole(self._path, data)
            self._written = data


def _decode(data: bytes) -> dict[str, dict[str, object]]:
    """Raises: ValueError (msgspec's errors are such)."""
    if len(data) > _MAX_BYTES:
        raise ValueError(f"more than {_MAX_BYTES} bytes")
    content = msgspec.json.decode(data, type=_Content)
    if content.version != _VERSION:
        raise ValueError(f"of version {content.version}")
    if any(len(bytes.fromhex(neuron)) != 32 for neuron in content.neurons):
        raise ValueError("a neuron's name has 64 hex digits")
    return {neuron: asdict(entry) for neuron, entry in content.neurons.items()}
