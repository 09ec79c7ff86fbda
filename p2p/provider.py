"""Answers peers: /glia/find/1, /glia/blocks/1, /glia/particle/1 (spec/exchange.md, particle.md).

All of it comes from one `Offer`, so only what is published can be seen; what is refused
and what was never there take one path and give one answer.

A request is read when its peer's turn has come: of questions, and of requests for particles,
a peer has one each under way, however many it sends; the rest stays with its transport.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio

from glia.errors import (
    BadRequest,
    CapacityError,
    GliaError,
    PeerLost,
    PeerRefused,
    RemoteProtocolError,
    StoreError,
)
from glia.graph.cid import CID_BYTES, name_of_cid
from glia.graph.ids import BlockId, ModelId, PrefixKey, ProfileId, WindowId
from p2p.answers import (
    PartReader,
    best_candidates,
    bitmap,
    bodies,
    found_chains,
    links_that_fit,
)
from p2p.frames import LENGTH, MAX_FRAME_BYTES, Reader, encode_frame, send_body
from p2p.host import Host, PeerId, Stream
from p2p.messages import (
    BLOCKS,
    FIND,
    MAX_PARTICLE_BYTES,
    PARTICLE,
    Find,
    GetBlocks,
    GetRecords,
    Links,
    NextBlocks,
    decode_blocks_request,
    decode_find_request,
    encode,
)
from p2p.offer import Offer
from p2p.turns import Turns
from p2p.upload import SendingBudget, UploadLimit

T = TypeVar("T")
_LOOKED_UP = 256  # names of blocks, at once, at most; a batch of small ones
_ANSWER_BYTES = 2 * MAX_FRAME_BYTES  # what one frame's worth of records takes
_log = logging.getLogger("gliad.p2p.provider")
Begin = Callable[[Reader, PeerId], Awaitable[Offer]]  # what a stream's peer is answered from
BeginFrames = Callable[[Reader, PeerId], Awaitable[Callable[[bytes], bytes]]]


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """What all peers together, and each, may have of this node."""

    peer_bytes: int = 1024 * 1024  # room for what is read for a peer
    total_bytes: int = 64 * 1024 * 1024
    answers_bytes: int = 16 * 1024 * 1024  # beside it: a question of each connected peer
    idle_s: float = 60.0  # a stream on which nothing is asked
    stream_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Served:
    """What a peer was given, or that it broke the rules."""

    num_blocks: int = 0
    num_bytes: int = 0
    is_bad: bool = False


class RunBlocking(Protocol):
    """Waits for a call that may block, in a worker thread or however the caller likes."""

    async def __call__(self, call: Callable[[], T], /) -> T: ...


class InThreads:
    """In worker threads, so many at once."""

    def __init__(self, num_threads: int = 4) -> None:
        self._limiter = trio.CapacityLimiter(num_threads)

    async def __call__(self, call: Callable[[], T], /) -> T:
        return await trio.to_thread.run_sync(call, limiter=self._limiter)


class Provider:
    """The handlers. Stateless but for turns and budgets; lives as long as its host.

    Args:
        tell: hears what each peer was given. Returns at once, never raises.
        read: how the offer is called.

    Attributes:
        counters: requests that were refused as something here is amiss, or full.
    """

    def __init__(
        self,
        offer: Offer,
        tell: Callable[[PeerId, Served], None],
        upload: UploadLimit,
        read: RunBlocking,
        limits: ServingLimits | None = None,
    ) -> None:
        self.counters = Counter[str]()
        self._offer = offer
        self._tell = tell
        self._upload = upload
        self._limits = limits or ServingLimits()
        self._budget = SendingBudget(self._limits.total_bytes, self._limits.peer_bytes)
        self._answers = SendingBudget(self._limits.answers_bytes, _ANSWER_BYTES)
        self._read = read
        self._questions, self._wants = Turns(), Turns()
        self._num_fitting = _LOOKED_UP
        self._spare = memoryview(b"")
        self._sending = trio.Lock()  # first come, first served
        self._is_here: Callable[[PeerId], bool] = lambda _: True

    def serve_on(self, host: Host) -> None:
        """Answer on this host from now on."""
        self._is_here = lambda peer: any(each.peer == peer for each in host.connections())
        for protocol, handler in (
            (FIND, self.find),
            (BLOCKS, self.blocks),
            (PARTICLE, self.particle),
        ):
            host.serve(protocol, handler, timeout_s=self._limits.stream_s)

    async def find(self, stream: Stream) -> None:
        """/glia/find/1. Raises: PeerLost, RemoteProtocolError; the host resets the stream."""
        await self.answer_finds(stream, self._begin)

    async def blocks(self, stream: Stream) -> None:
        """/glia/blocks/1, over any stream that proves its peer. Raises: as `find`."""
        await self.answer_blocks(stream, self._begin)

    async def particle(self, stream: Stream) -> None:
        """/glia/particle/1. Raises: as `find`."""
        await self._answer_all(stream, self._wants, self._answer_particle, self._begin)

    async def answer_finds(self, stream: Stream, begin: Begin) -> None:
        """As `find`, from what a stream begins with, within the same bounds. Raises: as `find`.

        Args: begin: of a stream; what of a peer's it raises ends that.
        """
        await self._answer_all(stream, self._questions, self._answer_find, begin)

    async def answer_blocks(self, stream: Stream, begin: Begin) -> None:
        """The same of `blocks`."""
        await self._answer_all(stream, self._wants, self._answer_blocks, begin)

    async def answer_frames(self, stream: Stream, begin: BeginFrames) -> None:
        """Each frame by one, as what a stream begins with says it; bounds and raises as `find`."""
        await self._answer_all(stream, self._questions, self._answer_frame, begin)

    async def _begin(self, _reader: Reader, _peer: PeerId) -> Offer:
        return self._offer

    async def _answer_all(
        self,
        stream: Stream,
        turns: Turns,
        answer: Callable[[Stream, bytes, T], Awaitable[None]],
        begin: Callable[[Reader, PeerId], Awaitable[T]],
    ) -> None:
        reader = Reader(stream)
        try:
            offer = await begin(reader, stream.peer)
            while (length := await reader.length(self._limits.idle_s)) is not None:
                async with turns.of(stream.peer):
                    await answer(stream, await reader.content(length), offer)
        except RemoteProtocolError:
            self._tell(stream.peer, Served(is_bad=True))
            raise
        except (CapacityError, StoreError) as error:
            raise self._refused(error) from error
        await stream.finish()

    def _refused(self, error: GliaError) -> PeerRefused:
        """What is amiss here is told in a line, not in one for each request."""
        self.counters["requests_refused"] += 1
        num = self.counters["requests_refused"]
        if num == 10 ** (len(str(num)) - 1):
            _log.warning("%d requests of peers were refused; the last one: %s", num, error)
        return PeerRefused(f"a request cannot be answered: {error}")

    # -- /glia/find/1 ---------------------------------------------------------------------

    async def _answer_find(self, stream: Stream, content: bytes, offer: Offer) -> None:
        request = decode_find_request(content)
        with self._answers.hold(_ANSWER_BYTES):
            if isinstance(request, Find):
                await self._answer_question(stream, request, offer)
            elif isinstance(request, GetRecords):
                tip = WindowId(request.tip)
                parts = PartReader(offer, tip, request.num_windows, request.start)
                await self._send_records(stream, parts)
            else:
                await self._answer_next(stream, request, offer)

    async def _answer_frame(
        self, stream: Stream, content: bytes, answer: Callable[[bytes], bytes]
    ) -> None:
        with self._answers.hold(_ANSWER_BYTES):
            await self._send(stream, encode_frame(await self._read(lambda: answer(content))))

    async def _answer_question(self, stream: Stream, question: Find, offer: Offer) -> None:
        keys = [(num_windows, PrefixKey(key)) for num_windows, key in question.keys]
        model_id, profile_id = ModelId(question.model_id), ProfileId(question.profile_id)
        found = await self._read(lambda: offer.match(model_id, profile_id, keys))
        candidates = best_candidates(found, question.classes)
        await self._send(stream, encode_frame(encode(found_chains(candidates))))
        if question.want_records and candidates:
            first = candidates[0]
            await self._send_records(stream, PartReader(offer, first.tip, first.num_windows, 0))

    async def _send_records(self, stream: Stream, parts: PartReader) -> None:
        while not parts.is_over:
            await self._send(stream, encode_frame(encode(await self._read(parts.read))))

    async def _answer_next(self, stream: Stream, request: NextBlocks, offer: Offer) -> None:
        links = await self._read(lambda: offer.next_links(WindowId(request.window_id)))
        await self._send(stream, encode_frame(encode(Links(links_that_fit(links)))))

    # -- /glia/blocks/1 and /glia/particle/1 ----------------------------------------------

    async def _answer_blocks(self, stream: Stream, content: bytes, offer: Offer) -> None:
        request = decode_blocks_request(content)
        if isinstance(request, GetBlocks):
            await self._send_blocks(stream, request.ids, offer)
        else:
            has = offer.has_block
            held = await self._read(lambda: [has(BlockId(each)) for each in request.ids])
            await self._send(stream, encode_frame(encode(bitmap(held))))

    async def _send_blocks(self, stream: Stream, ids: Sequence[bytes], offer: Offer) -> None:
        names = [BlockId(each) for each in ids]
        while names:
            num = await self._send_fitting(stream, names, offer)
            if not num:
                await self._send_large(stream, names[0], offer)
            names = names[max(1, num) :]

    async def _send_fitting(self, stream: Stream, names: Sequence[BlockId], offer: Offer) -> int:
        """The first ones, until one does not fit what is read at once. Returns: how many.

        Through one buffer, again and again, and the next request's is the same: the kernel takes
        long to find new ones.
        """
        at = 0
        with self._budget.hold(self._room_bytes()) as held:
            into = self._buffer(held.num_bytes)
            while at < len(names):
                some = names[at : at + self._num_fitting]
                found = await self._read(lambda: offer.read_blocks(some, into))  # noqa: B023
                if not found:
                    break
                self._learn(len(some), len(found))
                await self._send_bodies(stream, found)
                at += len(found)
            self._spare = into
        return at

    def _buffer(self, num_bytes: int) -> memoryview:
        """The last one that was used, where nobody else has it and it is of the size."""
        spare, self._spare = self._spare, memoryview(b"")
        return spare if len(spare) == num_bytes else memoryview(bytearray(num_bytes))

    def _learn(self, num_asked: int, num_found: int) -> None:
        """How many to look up next time: hardly more than fit, for each costs as much as a read."""
        if num_found < num_asked:
            self._num_fitting = num_found + 1
        elif num_asked >= self._num_fitting:
            self._num_fitting = min(_LOOKED_UP, num_asked + 1 + num_asked // 8)

    async def _send_large(self, stream: Stream, name: BlockId, offer: Offer) -> None:
        with self._budget.hold(MAX_PARTICLE_BYTES) as held:
            into = memoryview(bytearray(held.num_bytes))
            found = await self._read(lambda: offer.read_blocks([name], into))
            held.shrink(sum(map(_size, found)))  # the rest of the buffer was never touched
            await self._send_bodies(stream, found or [None])

    async def _send_bodies(self, stream: Stream, found: Sequence[memoryview | None]) -> None:
        num_blocks, num_bytes = sum(map(bool, found)), sum(map(_size, found))
        await self._wait_for_turn(stream.peer, num_bytes + LENGTH.size * len(found))
        for piece in bodies(found):
            await send_body(stream, piece)
        self._tell(stream.peer, Served(num_blocks, num_bytes))

    def _room_bytes(self) -> int:
        share, slow = self._budget.share_bytes, self._upload.batch_bytes
        return share if slow is None else min(share, slow)

    async def _answer_particle(self, stream: Stream, content: bytes, offer: Offer) -> None:
        if len(content) != CID_BYTES:
            raise RemoteProtocolError(f"a CID here has {CID_BYTES} bytes, not {len(content)}")
        try:
            name = name_of_cid(content)
        except BadRequest:  # of another codec, or hash: nothing here has such a name
            await self._send_bodies(stream, [None])
            return
        record = await self._read(lambda: offer.record(WindowId(name)))
        if record is None:
            await self._send_blocks(stream, [name], offer)
        else:
            await self._send_bodies(stream, [memoryview(record)])

    async def _send(self, stream: Stream, data: bytes) -> None:
        await self._wait_for_turn(stream.peer, len(data))
        await send_body(stream, data)

    async def _wait_for_turn(self, peer: PeerId, num_bytes: int) -> None:
        """Nobody waits for what would be sent to somebody who has gone. Raises: PeerLost."""
        if self._upload.batch_bytes is None:
            await trio.lowlevel.checkpoint()
            return
        async with self._sending:
            if not self._is_here(peer):
                raise PeerLost("the peer went before its turn came")
            wait_s = self._upload.take(num_bytes, trio.current_time())
            try:
                await trio.sleep(wait_s)
            except trio.Cancelled:
                self._upload.give_back(num_bytes)
                raise


def _size(particle: memoryview | None) -> int:
    return 0 if particle is None else len(particle)
