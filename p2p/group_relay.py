"""/glia/group/relay/1: who relays is told what is shown in a group, by public names alone.

Whoever relays has no key: it checks names, counts windows, and keeps the aliases that it is told,
for members to ask by. See spec/group-relay.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Protocol, TypeVar

import msgspec
import trio
from msgspec import Meta, Struct

from glia.errors import HashMismatch, NotFound, PeerLost, RemoteProtocolError
from glia.graph.encrypted import EncryptedWindow, parse_encrypted
from glia.graph.ids import ID_BYTES, WindowId, digest
from p2p.asking import ANSWER_TIMEOUT_S
from p2p.frames import MAX_FRAME_BYTES, Reader, encode_frame, send_body
from p2p.host import Stream
from p2p.messages import GetBlocks, LinkBytes, Message, Name, NumWindows, encode

_Said = TypeVar("_Said")
GROUP_RELAY = "/glia/group/relay/1"
MAX_TIPS = 1024
MAX_ROWS = 256
MAX_ROW_LINKS = 8
MAX_CHAIN_BYTES = 64 * 1024 * 1024  # of records that were not known before
MAX_WINDOW_BYTES = 128 * 1024 * 1024
_ROWS_BYTES = 62 * 1024  # of a frame's 64 KiB
_ROW_BYTES = 128  # what is in one beside its encoding and links
_WINDOW_S = 60.0
FIRST = bytes(ID_BYTES)  # before all names


class GetTips(Message, frozen=True):
    """Which windows does none continue? Answer: Tips.

    after: of those by name behind this one; of all: zeros.
    """

    after: Name


class GetRows(Message, frozen=True):
    """A window and those before it. Answer: Rows."""

    name: Name


class Tips(Message, frozen=True):
    """next: what to ask for more after; zeros: there is no more."""

    names: Annotated[tuple[Name, ...], Meta(max_length=MAX_TIPS)]
    next: Name = FIRST


class RowLink(Struct, frozen=True, array_like=True):
    """A sealed link, and where the windows begin that it attests."""

    num_before: Annotated[int, Meta(ge=0, lt=2**32)]
    base: Name
    sealed: LinkBytes


class Row(Struct, frozen=True, array_like=True):
    """A window as it is shown.

    num_windows: of its chain, up to it.
    hold_until_s: not to be announced before, seconds since 1970.
    alias: of its prefix key.
    """

    num_windows: NumWindows
    hold_until_s: Annotated[int, Meta(ge=0, lt=2**53)]
    alias: Name
    encoding: Annotated[bytes, Meta(min_length=1, max_length=MAX_FRAME_BYTES)]
    links: Annotated[tuple[RowLink, ...], Meta(max_length=MAX_ROW_LINKS)] = ()


class Rows(Message, frozen=True):
    """The newest first, as many as fit; none where the window is not there."""

    rows: Annotated[tuple[Row, ...], Meta(max_length=MAX_ROWS)]


_questions = msgspec.msgpack.Decoder(GetTips | GetRows)
_tips = msgspec.msgpack.Decoder(Tips)
_rows = msgspec.msgpack.Decoder(Rows)


class Catalogue(Protocol):
    """What is shown in a group, for who relays. In worker threads."""

    def tips(self, after: bytes) -> Tips:
        """Windows that none continues."""

    def row(self, name: WindowId) -> Row | None:
        """One that is shown, and here."""


class NothingKept:
    """The Catalogue of whoever may not."""

    def tips(self, _after: bytes) -> Tips:
        """See Catalogue."""
        return Tips(())

    def row(self, _name: WindowId) -> Row | None:
        """See Catalogue."""
        return None


def answer_relay(catalogue: Catalogue, content: bytes) -> bytes:
    """One question's. Raises: RemoteProtocolError."""
    try:
        question = _questions.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"not what who relays asks: {error}") from error
    if isinstance(question, GetTips):
        return encode(catalogue.tips(question.after))
    return encode(Rows(tuple(_fitting(catalogue, WindowId(question.name)))))


def _fitting(catalogue: Catalogue, name: WindowId) -> list[Row]:
    found: list[Row] = []
    left = _ROWS_BYTES
    while len(found) < MAX_ROWS and (row := catalogue.row(name)) is not None:
        left -= _ROW_BYTES + len(row.encoding)
        left -= sum(_ROW_BYTES + len(link.sealed) for link in row.links)
        if left < 0:
            break
        found.append(row)
        window = parse_encrypted(row.encoding, name)
        if window.is_first:
            break
        name = window.prev
    return found


class RelayAsking:
    """The asking side, over a stream on which it was shown who asks."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._reader = stream, Reader(stream)

    async def tips(self, after: bytes) -> Tips:
        """Raises: PeerLost, RemoteProtocolError."""
        said = await self._ask(GetTips(after), _tips)
        if said.next != FIRST and said.next <= after:
            raise RemoteProtocolError("names of windows that do not ascend")
        return said

    async def rows(
        self, tip: WindowId, has: Callable[[WindowId], Awaitable[bool]]
    ) -> list[tuple[EncryptedWindow, Row]]:
        """Those that are not here of the chain up to a window, in order; verified.

        Args: has: asked for each window before them, until it has one.
        Raises: PeerLost, RemoteProtocolError, HashMismatch, MalformedParticle; NotFound where the
            peer has not all of them, or they are too many.
        """
        found: list[tuple[EncryptedWindow, Row]] = []
        name, left = tip, MAX_CHAIN_BYTES
        while True:
            said = (await self._ask(GetRows(name), _rows)).rows
            if not said:
                raise NotFound("the peer does not have all of the chain's records")
            for row in said:
                window = parse_encrypted(row.encoding, name)
                if found and row.num_windows != found[-1][1].num_windows - 1:
                    raise RemoteProtocolError("windows that do not follow each other")
                found.append((window, row))
                left -= len(row.encoding)
                if window.is_first or await has(window.prev):
                    return found[::-1]
                name = window.prev
            if left < 0:
                raise NotFound("a chain that is too long to be relayed")

    async def _ask(self, question: Message, decoder: msgspec.msgpack.Decoder[_Said]) -> _Said:
        await send_body(self._stream, encode_frame(encode(question)))
        frame = await self._reader.frame(ANSWER_TIMEOUT_S)
        if frame is None:
            raise PeerLost("the stream ended before its answer")
        try:
            return decoder.decode(frame)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"not what who relays is answered: {error}") from error


async def take_blocks(stream: Stream, window: EncryptedWindow) -> Sequence[bytes]:
    """The sealed blocks of a window, verified, over a stream of /glia/group/blocks/1.

    Raises: PeerLost, RemoteProtocolError, HashMismatch; NotFound where the peer lacks one, or they
        are too large.
    """
    if window.sealed_bytes * len(window.blocks) > MAX_WINDOW_BYTES:
        raise NotFound("a window that is too large to be relayed")
    found: list[bytes] = []
    with trio.move_on_after(_WINDOW_S) as scope:
        await send_body(stream, encode_frame(encode(GetBlocks(tuple(window.blocks)))))
        reader = Reader(stream)
        for name in window.blocks:
            length = await reader.length()
            if not length:
                raise NotFound("the peer does not have all of a window's blocks")
            if length != window.sealed_bytes:
                raise RemoteProtocolError("a block that is not as long as its window says")
            found.append(await reader.exactly(length))
            if digest(found[-1]) != name:
                raise HashMismatch("a sealed block that is not the one of its name")
    if scope.cancelled_caught:
        raise PeerLost("the peer did not send a window in time")
    return found
