"""The asking side of /glia/find/1: one stream to one peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from glia.errors import NotFound, PeerLost, RemoteProtocolError
from glia.graph.ids import PrefixKey, WindowId
from p2p.frames import Reader, encode_frame, send_body
from p2p.host import Stream
from p2p.messages import (
    MAX_CLASSES,
    Find,
    FoundChain,
    GetRecords,
    Message,
    NextBlocks,
    decode_found,
    decode_links,
    decode_part,
    encode,
)
from p2p.walking import Question, Walk

ANSWER_TIMEOUT_S = 3.0  # until an answer begins, and between its parts

Keys = Sequence[tuple[int, PrefixKey]]


class Asks(Protocol):
    """What a search asks of a peer, in its chains' own names."""

    async def find(
        self, question: Question, keys: Keys, *, want_records: bool
    ) -> tuple[FoundChain, ...]:
        """See Asking."""

    async def get_records(self, walk: Walk, start: int = 0) -> None:
        """See Asking."""

    async def read_records(self, walk: Walk) -> None:
        """See Asking."""


class Asking:
    """Asks, one request after the other. A stream on which anything was raised is spent."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._reader = Reader(stream)

    async def find(
        self, question: Question, keys: Keys, *, want_records: bool
    ) -> tuple[FoundChain, ...]:
        """What the peer has, the best first; only chains that answer the question.

        With `want_records` the parts of the first one's records come next: `read_records`.

        Raises: PeerLost; RemoteProtocolError where it answers what was not asked.
        """
        await self._send(
            Find(
                model_id=question.model_id,
                profile_id=question.profile.profile_id,
                keys=tuple(keys),
                classes=question.classes[:MAX_CLASSES],
                want_records=want_records,
            )
        )
        candidates = decode_found(await self._frame()).candidates
        asked = {num_windows for num_windows, _ in keys}
        for each in candidates:
            is_of_class = not question.classes or each.numerics_class in question.classes
            if each.num_windows not in asked or not is_of_class:
                raise RemoteProtocolError("a chain that nobody asked for")
        return candidates

    async def get_records(self, walk: Walk, start: int = 0) -> None:
        """Ask for the records that a walk still needs, and walk them. Raises: as read_records.

        Args: start: leading windows that it does not.
        """
        if not walk.is_over:
            await self._send(GetRecords(walk.next_id, walk.num_left, start))
            await self.read_records(walk)

    async def read_records(self, walk: Walk) -> None:
        """Walk the parts that come, until the walk is over; parts may be left in the stream.

        Raises:
            PeerLost, RemoteProtocolError.
            NotFound: the peer does not have all of them; the walk has what came.
            HashMismatch, MalformedParticle: of the walk.
        """
        while not walk.is_over:
            part = decode_part(await self._frame())
            walk.take(part.encodings)
            if part.is_last and not walk.is_over:
                raise NotFound("the peer does not have all of the chain's records")
            if not part.encodings and not part.is_last:
                raise RemoteProtocolError("an empty part of records that is not the last")

    async def next_links(self, window_id: WindowId) -> tuple[bytes, ...]:
        """Links whose base is a window, unchecked. Raises: PeerLost, RemoteProtocolError."""
        await self._send(NextBlocks(window_id))
        return decode_links(await self._frame()).links

    async def _send(self, message: Message) -> None:
        await send_body(self._stream, encode_frame(encode(message)))

    async def _frame(self) -> bytes:
        frame = await self._reader.frame(ANSWER_TIMEOUT_S)
        if frame is None:
            raise PeerLost("the stream ended before its answer")
        return frame
