"""A file a group: what this node knows of it, secrets included, for its owner's eyes only."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from daemon.aside import next_aside
from daemon.conversation_io import erase_file
from glia.errors import BadRequest, MalformedParticle, StoreBroken, UnknownConversation
from glia.graph.capability import parse_chain
from glia.graph.group import Epoch, GroupId, GroupSecret, group_id_of
from glia.graph.ids import ID_BYTES
from glia.graph.member import Keys
from glia.graph.neuron import NeuronId
from glia.graph.revoked import parse_revoked
from glia.store.files import sync_directory

_MAX_BYTES = 1024 * 1024
_log = logging.getLogger("gliad.groups")

_Key = Annotated[bytes, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]


class EpochRow(Struct, frozen=True):
    """An epoch, and when it began here, seconds since 1970, UTC.

    statement: the issuer's signature; empty where it was written before there were any.
    """

    number: int
    key: _Key
    began_s: int
    statement: bytes = b""

    def __repr__(self) -> str:  # its key stands in no log
        return f"EpochRow({self.number})"


class MemberRow(Struct, frozen=True):
    """Whom this node grants something.

    neuron, peer: who it is: one of them, until a card says both.
    until_s: when that ends; None: when it is revoked.
    bytes_per_hour: what one server gives it at most; None: no limit.
    holders: peer keys that capabilities were signed for.
    """

    ops: int
    granted_s: int
    neuron: _Key | None = None
    peer: _Key | None = None
    model_id: _Key | None = None
    until_s: int | None = None
    holders: tuple[_Key, ...] = ()
    bytes_per_hour: int | None = None


class GroupRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A group.

    secret, epochs: None, and none, where this node relays what it cannot read.
    seed: the issuer's, where this node is the issuer; else None.
    chain: this node's capability; empty where it is the issuer.
    revoked: the last list, as it was signed.
    homes: where the next grant is to be had; none where this node is the issuer.
    given_s: when the last one was signed.
    """

    name: str
    issuer: _Key
    secret: _Key | None
    epochs: tuple[EpochRow, ...]
    revoked: bytes
    seed: _Key | None = None
    chain: bytes = b""
    homes: tuple[str, ...] = ()
    given_s: int = 0
    members: tuple[MemberRow, ...] = ()
    version: int = 1

    def __repr__(self) -> str:  # its secrets stand in no log
        return f"GroupRow({self.name!r}, {self.group_id.hex()})"

    @property
    def group_id(self) -> GroupId:
        """Its name in the world."""
        return group_id_of(NeuronId(self.issuer))

    @property
    def keys(self) -> Keys | None:
        """What its members know; None of a relay."""
        if self.secret is None:
            return None
        epochs = tuple(Epoch(row.number, row.key) for row in self.epochs)
        return Keys(GroupSecret(self.secret), epochs, tuple(row.statement for row in self.epochs))

    @property
    def is_issuer(self) -> bool:
        """Whether this node is."""
        return self.seed is not None

    @property
    def is_relay(self) -> bool:
        """Whether this node keeps and serves it without a key."""
        return self.secret is None

    @property
    def is_whole(self) -> bool:
        """Whether there is what one of its kind has."""
        return not self.is_issuer and not self.epochs if self.is_relay else bool(self.epochs)


class GroupFiles:
    """The files of all groups. Blocking; one writer at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> Iterator[GroupRow]:
        """All that can be read; what cannot is set aside, with a warning.

        Raises: BadRequest (a file that is open to others).
        """
        for path in sorted(self._directory.glob("*.group")):
            row = self._read(path)
            if row is not None:
                yield row

    def save(self, row: GroupRow) -> None:
        """Replace a group's file. Raises: StoreBroken."""
        path = self._path(row.group_id)
        partial = path.with_name(f"{path.name}.partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(partial, flags, 0o600), "wb") as file:
                file.write(msgspec.msgpack.encode(row))
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_directory(self._directory)
        except OSError as error:
            raise StoreBroken(
                f"{path}: {error.strerror}", hint=f"df -h {self._directory}"
            ) from error

    def remove(self, group: GroupId) -> None:
        """Of a group that was left: overwritten first. Raises: StoreFull, StoreBroken."""
        with suppress(UnknownConversation):  # it is gone
            erase_file(self._path(group))

    def _path(self, group: GroupId) -> Path:
        return self._directory / f"{group.hex()}.group"

    def _read(self, path: Path) -> GroupRow | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                _check(os.fstat(fd), path)
                row = msgspec.msgpack.decode(file.read(_MAX_BYTES), type=GroupRow)
            if row.version != 1 or self._path(row.group_id) != path or not row.is_whole:
                raise ValueError("not of this group, or of another version")
            parse_revoked(row.revoked, row.group_id)
            if not row.is_issuer:
                parse_chain(row.chain)
        except (
            OSError,
            ValueError,
            MalformedParticle,
        ) as error:  # msgspec's errors are ValueErrors
            self._set_aside(path, error)
            return None
        return row

    def _set_aside(self, path: Path, error: Exception) -> None:
        place = next_aside(path)
        _log.warning("%s cannot be read (%s): it is kept as %s", path, error, place.name)
        try:
            os.replace(path, place)
        except OSError as problem:
            _log.warning("%s cannot be set aside: %s", path, problem)


def _check(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise BadRequest(f"{path}: not a file of yours", hint=f"rm {path}")
    if status.st_mode & 0o077:
        raise BadRequest(
            f"{path} is open to other users, who may have read its secrets",
            hint=f"chmod 600 {path}, and gliad group rotate",
        )
