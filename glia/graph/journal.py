"""A conversation as the bytes of its file: framed records, each checked over all before it.

See spec/8-conversation.md. Pure; a torn or changed tail ends the reading, and is no error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NewType

from blake3 import blake3

from glia.errors import MalformedParticle, StoreVersion
from glia.graph.conversation import (
    MAX_CONTENT_BYTES,
    Begin,
    Message,
    Origin,
    Record,
    Replay,
    Turn,
    is_name,
)
from glia.graph.fields import Fields, encode_text
from glia.graph.group import GroupId
from glia.graph.ids import ID_BYTES, ModelId, WindowId, derive
from glia.graph.privacy import Visibility
from glia.graph.sampling import SAMPLING_BYTES, decode_sampling, encode_sampling
from glia.graph.tokens import TOKEN_BYTES, pack_tokens, unpack_tokens

ConversationId = NewType("ConversationId", bytes)

VERSION = 2
_OLDEST = 1  # the same, but that no message says how it was chosen, and no turn has a group
MAX_FILE_BYTES = 64 * 2**20
MAX_RECORD_BYTES = 32 * 2**20
CHECK_BYTES = 16
HEAD_BYTES = 8

_MAGIC = b"GCNV"
_HEAD = struct.Struct("<4sHH")
_FRAME = struct.Struct("<IHH")
_FRAME_BYTES = _FRAME.size + CHECK_BYTES
_BEGIN = struct.Struct("<Q")
_ORIGIN = struct.Struct("<I")
_TURN = struct.Struct("<QIIIBBH")
_MESSAGE = struct.Struct("<IIBBBB")
_LONG = struct.Struct("<I")
_MAX_TEXT_BYTES = 1024  # of a name, a model, a role
_KINDS = {1: Begin, 2: Origin, 3: Turn}


@dataclass(frozen=True)
class Journal:
    """A file read: what its whole records amount to, and where the next one goes.

    Attributes:
        version: of its format.
        turns: in order; what a later one does not keep was said all the same.
        size_bytes: up to the end of the last whole record.
        check: that of the last whole record.
        is_damaged: whether there is more behind it than a record that was not written whole.
    """

    version: int
    replay: Replay
    turns: tuple[Turn, ...]
    size_bytes: int
    check: bytes
    is_damaged: bool


def begin_file(records: Sequence[Record]) -> tuple[bytes, bytes]:
    """The bytes of a new file, and its last check."""
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    parts, check = [head], _check(b"", head)
    for record in records:
        data, check = encode_record(record, check)
        parts.append(data)
    return b"".join(parts), check


def id_of(begin: Begin) -> ConversationId:
    """What stays the same of a conversation, wherever its file is."""
    return ConversationId(derive("glia 2026 v1 conversation", _encode(begin)))


def encode_record(record: Record, before: bytes) -> tuple[bytes, bytes]:
    """A framed record and its check. Args: before: the check of the record before it."""
    (kind,) = (number for number, cls in _KINDS.items() if isinstance(record, cls))
    return _framed(kind, _encode(record), before)


def _framed(kind: int, body: bytes, before: bytes) -> tuple[bytes, bytes]:
    frame = _FRAME.pack(len(body), kind, 0)
    check = _check(before, frame, body)
    return frame + check + body, check


def read_journal(data: bytes) -> Journal:
    """A file's records, up to the first that is not whole.

    Raises:
        MalformedParticle: its begin is damaged, or a whole record is none of this version.
        StoreVersion: a newer version wrote it.
    """
    magic, version, zero = _HEAD.unpack_from(data.ljust(HEAD_BYTES, b"\0"))
    check = _check(b"", data[:HEAD_BYTES])
    frames = _frames(data, check)
    first = next(frames, None)
    if first is None or magic != _MAGIC or zero:
        raise MalformedParticle("the begin of a conversation is damaged")
    if version > VERSION:
        raise StoreVersion(
            f"a conversation of format version {version}, this gliad knows {VERSION}",
            hint="use a newer gliad",
        )
    begin = _decode(first.kind, first.body, version)
    if version < _OLDEST or not isinstance(begin, Begin):
        raise MalformedParticle("a conversation's first record is no begin")
    replay, turns, at = Replay(begin), list[Turn](), first
    for frame in frames:
        record = _decode(frame.kind, frame.body, version)
        if isinstance(record, Turn):
            replay.apply(record)
            turns.append(record)
        elif isinstance(record, Origin) and at is first:
            replay = Replay(begin, record)
        else:
            raise MalformedParticle("a conversation's record is out of its place")
        at = frame
    is_damaged = _is_more_than_torn(data[at.end :])
    return Journal(version, replay, tuple(turns), at.end, at.check, is_damaged)


def upgraded(data: bytes) -> bytes:
    """A whole file of an older version as one of this: as long, with other checks."""
    head = _HEAD.pack(_MAGIC, VERSION, 0)
    parts, check = [head], _check(b"", head)
    for frame in _frames(data, _check(b"", data[:HEAD_BYTES])):
        part, check = _framed(frame.kind, frame.body, check)
        parts.append(part)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class _Frame:
    kind: int
    body: bytes
    check: bytes
    end: int


def _frames(data: bytes, check: bytes) -> Iterator[_Frame]:
    """Whole frames; the first that is not ends it."""
    at = HEAD_BYTES
    while at + _FRAME_BYTES <= len(data):
        length, kind, zero = _FRAME.unpack_from(data, at)
        body_at = at + _FRAME_BYTES
        end = body_at + length
        if length > MAX_RECORD_BYTES or end > len(data) or zero:
            return
        body = data[body_at:end]
        said = data[at + _FRAME.size : body_at]
        check = _check(check, data[at : at + _FRAME.size], body)
        if said != check:
            return
        yield _Frame(kind, body, check, end)
        at = end


def _is_more_than_torn(rest: bytes) -> bool:
    """Whether these bytes behind the last whole record are no beginning of one, nor zeros."""
    rest = rest.rstrip(b"\0")
    if len(rest) < _FRAME_BYTES:
        return False
    length, _, _ = _FRAME.unpack_from(rest)
    return bool(length > MAX_RECORD_BYTES or len(rest) >= _FRAME_BYTES + length)


def _check(*parts: bytes) -> bytes:
    return blake3(b"".join(parts)).digest(length=CHECK_BYTES)


def _encode(record: Record) -> bytes:
    match record:
        case Begin():
            fixed = _BEGIN.pack(record.created_us) + record.model_id
            return (
                fixed
                + encode_text(record.name)
                + encode_text(record.model)
                + encode_text(record.dtype)
            )
        case Origin():
            return _ORIGIN.pack(record.num_tokens) + encode_text(record.name)
        case Turn():
            fixed = _TURN.pack(
                record.used_us,
                record.keep,
                len(record.tokens),
                len(record.messages),
                record.tip is not None,
                record.group is not None,
                0,
            )
            tip, group = record.tip or bytes(ID_BYTES), record.group or b""
            messages = b"".join(map(_encode_message, record.messages))
            return fixed + tip + group + pack_tokens(record.tokens) + messages


def _encode_message(message: Message) -> bytes:
    has_content, how = message.content is not None, message.sampling
    has_sampling = how is not None
    fixed = _MESSAGE.pack(
        message.start, message.end, message.visibility, has_content, has_sampling, 0
    )
    text = encode_text(message.content, _LONG) if message.content is not None else b""
    # A record ends in a text: what a crash leaves behind it is zeros, and no part of it.
    return (
        fixed
        + (encode_sampling(how) if how is not None else b"")
        + encode_text(message.role)
        + text
    )


def _decode(kind: int, body: bytes, version: int) -> Record:
    """Strict: encoding again gives the input."""
    fields = Fields(body, "a conversation's record")
    record: Record
    if kind == 1:
        record = _decode_begin(fields)
    elif kind == 2:
        (num_tokens,) = fields.unpack(_ORIGIN)
        record = Origin(_name(fields), num_tokens)
    elif kind == 3:
        record = _decode_turn(fields, version)
    else:
        raise MalformedParticle(f"a conversation has no records of kind {kind}")
    fields.end()
    return record


def _name(fields: Fields) -> str:
    name = fields.text(_MAX_TEXT_BYTES)
    if not is_name(name):
        raise MalformedParticle("a conversation's record has a name that cannot be")
    return name


def _decode_begin(fields: Fields) -> Begin:
    (created_us,) = fields.unpack(_BEGIN)
    model_id = ModelId(fields.take(ID_BYTES))
    name = _name(fields)
    model, dtype = (fields.text(_MAX_TEXT_BYTES) for _ in range(2))
    return Begin(created_us, name, model, dtype, model_id)


def _decode_turn(fields: Fields, version: int) -> Turn:
    used_us, keep, num_tokens, num_messages, has_tip, has_group, zeros = fields.unpack(_TURN)
    tip = fields.take(ID_BYTES)
    if has_tip > 1 or has_group > (version > _OLDEST) or zeros or (not has_tip and any(tip)):
        raise MalformedParticle("a turn's fields are out of range")
    group = GroupId(fields.take(ID_BYTES)) if has_group else None
    tokens = unpack_tokens(fields.take(TOKEN_BYTES * num_tokens))
    messages = tuple(_decode_message(fields, version) for _ in range(num_messages))
    tip_id = WindowId(tip) if has_tip else None
    return Turn(used_us, keep, tokens, messages, tip_id, group)


def _decode_message(fields: Fields, version: int) -> Message:
    start, end, label, has_content, has_sampling, zero = fields.unpack(_MESSAGE)
    most = version > _OLDEST
    if label not in tuple(Visibility) or has_content > 1 or has_sampling > most or zero:
        raise MalformedParticle("a message's fields are out of range")
    sampling = decode_sampling(fields.take(SAMPLING_BYTES)) if has_sampling else None
    role = fields.text(_MAX_TEXT_BYTES)
    content = fields.text(MAX_CONTENT_BYTES, _LONG) if has_content else None
    return Message(role, content, start, end, Visibility(label), sampling)
