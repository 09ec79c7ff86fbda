"""The port of the network. `libp2p_host` and `testing` keep it; tests/contract holds them to it.

Everything is async and belongs to one trio thread. A failure of one peer is an error of
that call alone: no peer, whatever it sends, ends a handler of another, a connection of
another, or the host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NewType, Protocol

PeerId = NewType("PeerId", str)  # base58btc text of the libp2p peer id
Address = NewType("Address", str)  # multiaddr text, ending in /p2p/PEER where it is dialled

Direction = Literal["in", "out"]


class Stream(Protocol):
    """A byte stream to an authenticated peer.

    Cancelling a read or write leaves the connection and its other streams as they were; the
    stream itself is then of no more use, and is to be reset.
    """

    @property
    def peer(self) -> PeerId:
        """Who is at the other end: proved by the handshake, not claimed."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """1 to `max_bytes` bytes; b"" once the other side has finished.

        Raises: PeerLost.
        """

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Returns when the transport has taken all of it. Raises: PeerLost."""

    async def finish(self) -> None:
        """Send no more; what the other side sends can still be read. Raises: PeerLost."""

    async def reset(self) -> None:
        """Both directions end at once; what was not delivered may be lost. Never raises."""


Handler = Callable[[Stream], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What peers may use, before anything is allocated (SECURITY 1.5)."""

    max_connections: int = 128
    max_connections_per_peer: int = 2
    max_pending: int = 64
    max_pending_per_address: int = 16
    max_connections_per_address: int = 32
    max_handshakes_per_s: float = 16.0  # of one address; of 16 seconds at once
    max_streams_per_peer: int = 16  # of one protocol, inbound, under way at once
    handler_timeout_s: float = 120.0  # for one inbound stream, unless its protocol says otherwise
    handshake_timeout_s: float = 5.0
    dial_timeout_s: float = 5.0
    max_unread_bytes: int = 8 * 1024 * 1024  # buffered for a reader that stalls; then it is closed


@dataclass(frozen=True, slots=True)
class Connection:
    """One open connection, as it is listed.

    Attributes:
        address: one of the peer's; of who dialled us, as it says.
        rtt_s: of the last ping, None before it.
        remote_ip: where its packets come from; "" where that is not known.
    """

    peer: PeerId
    address: Address
    direction: Direction
    since_s: float  # trio's clock
    agent: str = ""
    rtt_s: float | None = None
    remote_ip: str = ""


class Host(Protocol):
    """This node on the network."""

    @property
    def peer_id(self) -> PeerId:
        """Ours."""

    def addresses(self) -> Sequence[Address]:
        """Where we can be dialled, each with our peer id."""

    def connections(self) -> Sequence[Connection]:
        """Who is connected now, one entry a peer."""

    def serve(self, protocol: str, handler: Handler, *, timeout_s: float | None = None) -> None:
        """Answer inbound streams of a protocol; each handler in a task of its own.

        What a handler raises is logged and counted, and resets its stream. A peer's streams
        beyond `Limits.max_streams_per_peer`, and those over their time, are reset.
        """

    async def connect(self, address: Address) -> PeerId:
        """Dial, unless there is a connection already. Raises: PeerUnreachable, BadRequest."""

    async def open(self, peer: PeerId, protocol: str) -> Stream:
        """A new stream to a peer; dials it if its address is known.

        Raises: PeerUnreachable, PeerRefused (it does not speak the protocol).
        """

    async def disconnect(self, peer: PeerId) -> None:
        """Close what there is to a peer. Never raises."""

    async def ping(self, peer: PeerId) -> float:
        """Round trip, seconds. Raises: PeerUnreachable, PeerLost."""

    def ban(self, peer: PeerId, is_banned: bool) -> None:
        """Refuse a peer's connections and streams from now on, or no longer."""


@dataclass(frozen=True, slots=True)
class Found:
    """A peer that is said to have something, and where it may be dialled."""

    peer: PeerId
    addresses: tuple[Address, ...]


class Directory(Protocol):
    """The DHT: hints, never the only way to find anything (T6).

    Attributes:
        rendezvous: peers that are told and asked besides those closest to a key, while they
            are connected: whom the user named. Whoever surrounds a key does not surround them.
        is_proven: whether a peer gave what it said to have, before: it loses its place in what
            is kept here for others to nobody who did not.
        num_crowded: look-ups that found the peers closest to a key too close.
    """

    rendezvous: Callable[[], Sequence[PeerId]]
    is_proven: Callable[[PeerId], bool]

    @property
    def num_crowded(self) -> int: ...

    async def provide(self, key: bytes) -> None:
        """Say that this node has `key` (32 bytes). Raises: PeerUnreachable."""

    async def providers(self, key: bytes, most: int) -> list[Found]:
        """Peers that say they have it; each once, ourselves never. Empty where nobody does."""

    async def put(self, key: bytes, value: bytes) -> None:
        """Store a small value that every node validates. Raises: PeerUnreachable, BadRequest."""

    async def get(self, key: bytes) -> list[bytes]:
        """Values under a key that passed our validator. Empty where nobody has one."""


class Gossip(Protocol):
    """Topics. Delivery is best effort; order is not kept; the sender is proved."""

    def join(self, topic: str, take: Callable[[PeerId, bytes], None]) -> None:
        """Hand each valid message of a topic to `take`, which returns at once and never raises."""

    def leave(self, topic: str) -> None:
        """The opposite. A topic that was not joined is no matter."""

    async def publish(self, topic: str, message: bytes) -> None:
        """Tell the topic's peers; at most MAX_MESSAGE_BYTES. Raises: BadRequest."""


MAX_MESSAGE_BYTES = 4096
MAX_VALUE_BYTES = 4096
