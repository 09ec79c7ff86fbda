"""Control messages of /glia/find/1 and /glia/blocks/1 (spec/exchange.md).

A frame holds one of these as msgpack: an array, its first element the name of its kind.
Fields that a later revision adds come last, and are skipped by those who do not know them.

The largest Find fits a frame: 1,500 keys of at most 40 bytes and 16 classes of at most
259 are 64,225 bytes of 65,536.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from glia.errors import RemoteProtocolError
from glia.graph.boundaries import MAX_KEYS
from glia.graph.profile import HEADER_FIXED_BYTES, MAX_BLOCK_SIZE, MAX_PAYLOAD_BYTES
from glia.graph.tokens import TOKEN_BYTES
from glia.graph.window import MAX_CLASS_BYTES

FIND = "/glia/find/1"
BLOCKS = "/glia/blocks/1"
PARTICLE = "/glia/particle/1"

MAX_CLASSES = 16
MAX_CANDIDATES = 8
MAX_LINKS = 128  # of a candidate or a window
MAX_LINK_BYTES = 1_024
MAX_WANTS = 1_024  # block ids of a request, and of a peer at once
MAX_WINDOWS = 2**18  # of a chain that is asked for: 4 million tokens
MAX_RECORD_BYTES = 34_168  # glia/spec/4-window.md
MAX_PART_RECORDS = 256
MAX_PARTICLE_BYTES = MAX_PAYLOAD_BYTES + HEADER_FIXED_BYTES + TOKEN_BYTES * MAX_BLOCK_SIZE

Name = Annotated[bytes, Meta(min_length=32, max_length=32)]
NumWindows = Annotated[int, Meta(ge=1, le=MAX_WINDOWS)]
Class = Annotated[str, Meta(min_length=1, max_length=MAX_CLASS_BYTES)]
LinkBytes = Annotated[bytes, Meta(min_length=1, max_length=MAX_LINK_BYTES)]
LinkList = Annotated[tuple[LinkBytes, ...], Meta(max_length=MAX_LINKS)]
Encoding = Annotated[bytes, Meta(min_length=1, max_length=MAX_RECORD_BYTES)]


class Message(Struct, frozen=True, array_like=True, tag=True):
    """Base of all."""


# -- /glia/find/1: requests ---------------------------------------------------------------


class Find(Message, frozen=True):
    """Who has the longest prefix of this? Answer: FoundChains, then RecordParts if wanted.

    Attributes:
        keys: (number of windows, prefix key of the last of them), any order.
        classes: the numerics classes that are taken, the best first; empty takes any.
        want_records: send the records of the first candidate behind the answer.
    """

    model_id: Name
    profile_id: Name
    keys: Annotated[tuple[tuple[NumWindows, Name], ...], Meta(min_length=1, max_length=MAX_KEYS)]
    classes: Annotated[tuple[Class, ...], Meta(max_length=MAX_CLASSES)] = ()
    want_records: bool = False


class GetRecords(Message, frozen=True):
    """The records of windows start to num_windows - 1 of a chain. Answer: RecordParts."""

    tip: Name
    num_windows: NumWindows
    start: Annotated[int, Meta(ge=0, lt=MAX_WINDOWS)] = 0


class NextBlocks(Message, frozen=True):
    """The links whose base is a window. Answer: Links."""

    window_id: Name


# -- /glia/find/1: answers ----------------------------------------------------------------


class FoundChain(Struct, frozen=True, array_like=True):
    """A chain that matches: its first `num_windows` windows have one of the keys asked for.

    `links` are signed links of the chain as they travel, the nearest to the tip first.
    """

    num_windows: NumWindows
    tip: Name
    numerics_class: Class
    links: LinkList


class FoundChains(Message, frozen=True):
    """The best first; empty where there is none, for whatever reason."""

    candidates: Annotated[tuple[FoundChain, ...], Meta(max_length=MAX_CANDIDATES)]


class RecordPart(Message, frozen=True):
    """Window records, newest first, each one the `prev` of the one before it.

    Several parts follow each other; the last one says so, and may be empty or come early:
    then the rest is not there.
    """

    encodings: Annotated[tuple[Encoding, ...], Meta(max_length=MAX_PART_RECORDS)]
    is_last: bool


class Links(Message, frozen=True):
    """Signed links, as they travel."""

    links: LinkList


# -- /glia/blocks/1 -----------------------------------------------------------------------


class GetBlocks(Message, frozen=True):
    """Answer: no frame, but for each id in its order a u32 length and the particle; 0 = absent."""

    ids: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_WANTS)]


class Have(Message, frozen=True):
    """Which of these are there? Answer: Held."""

    ids: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_WANTS)]


class Held(Message, frozen=True):
    """Bit i % 8 of byte i // 8, from the lowest, is set where id i is there."""

    bitmap: Annotated[bytes, Meta(min_length=1, max_length=MAX_WANTS // 8)]


T = TypeVar("T")
FindRequest = Find | GetRecords | NextBlocks
BlocksRequest = GetBlocks | Have

_encoder = msgspec.msgpack.Encoder()
_find_request: msgspec.msgpack.Decoder[FindRequest] = msgspec.msgpack.Decoder(
    Find | GetRecords | NextBlocks
)
_blocks_request: msgspec.msgpack.Decoder[BlocksRequest] = msgspec.msgpack.Decoder(GetBlocks | Have)
_found = msgspec.msgpack.Decoder(FoundChains)
_part = msgspec.msgpack.Decoder(RecordPart)
_links = msgspec.msgpack.Decoder(Links)
_held = msgspec.msgpack.Decoder(Held)


def encode(message: Message) -> bytes:
    """A frame's content."""
    return _encoder.encode(message)


def decode_find_request(content: bytes) -> FindRequest:
    """Raises: RemoteProtocolError."""
    return _decode(_find_request, content)


def decode_blocks_request(content: bytes) -> BlocksRequest:
    """Raises: RemoteProtocolError."""
    return _decode(_blocks_request, content)


def decode_found(content: bytes) -> FoundChains:
    """Raises: RemoteProtocolError."""
    return _decode(_found, content)


def decode_part(content: bytes) -> RecordPart:
    """Raises: RemoteProtocolError."""
    return _decode(_part, content)


def decode_links(content: bytes) -> Links:
    """Raises: RemoteProtocolError."""
    return _decode(_links, content)


def decode_held(content: bytes) -> Held:
    """Raises: RemoteProtocolError."""
    return _decode(_held, content)


def _decode(decoder: msgspec.msgpack.Decoder[T], content: bytes) -> T:
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"not a message of this protocol: {error}") from error
