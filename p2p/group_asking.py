"""The asking side of /glia/group/find/1: in windows' own names here, in ciphertexts' on the wire.

No prefix key, window id or record of a group is said to a peer: keys are asked for as aliases,
windows by what a peer calls them, and what comes is opened here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

from glia.errors import IntegrityError, NotFound, PeerLost, RemoteProtocolError
from glia.graph.boundaries import MAX_KEYS
from glia.graph.encrypted import EncryptedWindow, parse_encrypted
from glia.graph.ids import ID_BYTES, WindowId, short
from glia.graph.sealed_link import open_link
from glia.graph.window import WindowRecord
from p2p.asking import ANSWER_TIMEOUT_S, Keys
from p2p.frames import MAX_FRAME_BYTES, Reader, encode_frame, send_body
from p2p.host import Stream
from p2p.membership import Ciphertexts
from p2p.messages import (
    MAX_PART_RECORDS,
    Find,
    FoundChain,
    GetRecords,
    Message,
    decode_found,
    encode,
)
from p2p.walking import Question, Walk

SEALED = "sealed"  # the class that all chains have for whoever carries them

MAX_EPOCHS = 8  # the newest ones, whose aliases a question has
_NOBODY = bytes(ID_BYTES)
_Encoding = Annotated[bytes, Meta(min_length=1, max_length=MAX_FRAME_BYTES)]


class _SealedPart(Message, frozen=True, tag="RecordPart"):
    """A RecordPart whose encodings are encrypted windows: they are longer than records."""

    encodings: Annotated[tuple[_Encoding, ...], Meta(max_length=MAX_PART_RECORDS)]
    is_last: bool


_part = msgspec.msgpack.Decoder(_SealedPart)


class GroupAsking:
    """Asks (p2p/asking.py), over a stream on which it was shown who asks."""

    def __init__(self, stream: Stream, known: Ciphertexts) -> None:
        self._stream, self._peer, self._known = stream, stream.peer, known
        self._membership = known.membership
        self._reader = Reader(stream)

    async def find(
        self, question: Question, keys: Keys, *, want_records: bool
    ) -> tuple[FoundChain, ...]:
        """See Asking. Chains that cannot be opened here are left out. Raises also HashMismatch.

        Records are not sent behind it: `read_records` asks for them.
        """
        aliases = [
            (num, alias)
            for num, key in keys
            for alias in islice(self._membership.aliases(key), MAX_EPOCHS)
        ]
        await self._send(Find(_NOBODY, _NOBODY, tuple(aliases[-MAX_KEYS:])))
        said = decode_found(await self._frame()).candidates
        asked = {num_windows for num_windows, _ in keys}
        if any(each.num_windows not in asked for each in said):
            raise RemoteProtocolError("a chain that nobody asked for")
        for each in said:
            await self._send(GetRecords(each.tip, each.num_windows, each.num_windows - 1))
        found = [chain for each in said if (chain := await self._opened(question, each))]
        return tuple(found)

    async def get_records(self, walk: Walk, start: int = 0) -> None:
        """See Asking."""
        if walk.is_over:
            return
        name = self._known.name_of(self._peer, walk.next_id)
        names = [name] if name else self._membership.aliases(walk.next_id)
        num_left = walk.num_left
        for each in names:
            await self._send(GetRecords(each, walk.num_left, max(start, walk.question.num_public)))
            await self._walk(walk, name)
            if walk.num_left < num_left:
                break
        if not walk.is_over:
            raise NotFound("the peer does not have all of the chain's records")

    async def read_records(self, walk: Walk) -> None:
        """See Asking."""
        await self.get_records(walk)

    async def _walk(self, walk: Walk, name: WindowId | None) -> None:
        """Walk what comes, until the walk or the answer is over. Raises: as Asking.read_records.

        Args: name: what the peer calls the first of them; None where it was asked by an alias.
        """
        is_last = False
        while not (walk.is_over or is_last):
            part = await self._part()
            is_last = part.is_last
            for encoding in part.encodings:
                if walk.is_over:
                    return
                window, record = self._open(encoding, name)
                if record.window_id != walk.next_id:
                    raise NotFound(f"window {short(walk.next_id)}: another stands in its place")
                walk.take([record.encoding])
                self._known.learn(self._peer, window, record)
                name = window.prev

    async def _opened(self, question: Question, said: FoundChain) -> FoundChain | None:
        """A chain in its own names; None where it is not of use. Raises: HashMismatch."""
        part = await self._part()
        if not part.is_last or len(part.encodings) > 1:
            raise RemoteProtocolError("more records than were asked for")
        if not part.encodings:
            return None
        try:
            window, record = self._open(part.encodings[0], WindowId(said.tip))
        except NotFound:
            return None
        self._known.called(self._peer, record.window_id, window.window_id)
        name = record.numerics_class
        if question.classes and name not in question.classes:
            return None
        return FoundChain(said.num_windows, record.window_id, name, self._links(said.links))

    def _links(self, said: Sequence[bytes]) -> tuple[bytes, ...]:
        """Those that can be opened."""
        found: list[bytes] = []
        for each in said:
            try:
                found.append(open_link(self._membership.epochs, each))
            except IntegrityError:
                continue
        return tuple(found)

    def _open(self, encoding: bytes, name: WindowId | None) -> tuple[EncryptedWindow, WindowRecord]:
        """Raises: HashMismatch, NotFound, MalformedParticle."""
        window = parse_encrypted(encoding, name)
        return window, self._membership.opened(window)

    async def _part(self) -> _SealedPart:
        """The next of an answer. Raises: PeerLost, RemoteProtocolError."""
        try:
            part = _part.decode(await self._frame())
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"not a part of records: {error}") from error
        if not part.encodings and not part.is_last:
            raise RemoteProtocolError("an empty part of records that is not the last")
        return part

    async def _send(self, message: Message) -> None:
        await send_body(self._stream, encode_frame(encode(message)))

    async def _frame(self) -> bytes:
        frame = await self._reader.frame(ANSWER_TIMEOUT_S)
        if frame is None:
            raise PeerLost("the stream ended before its answer")
        return frame
