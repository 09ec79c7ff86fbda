"""Bodies of one Soul tell each other over the network who has what.

Who is asked: peers that sign as a neuron which was a Body of the Soul, as its checkpoints and
claims say. Anybody may ask this node, and learns nothing unless it has the Soul's secret.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import trio

from daemon.moves import told
from daemon.paths import Paths
from daemon.peering import Peering
from daemon.soul_key import read_soul
from daemon.soul_state import SoulState
from glia.errors import BadRequest, GliaError, MalformedParticle, RemoteProtocolError
from glia.graph.claim import Claim, parse_claim, sign_claim
from glia.graph.soul import Soul
from p2p.bearing import CLAIMS, HANDLER_S, answer_bearer, ask_bearer, hear, tell
from p2p.frames import Reader
from p2p.host import Connection, PeerId, Stream

_LOOK_S = 2.0
_AGAIN_S = 10.0  # whom it could not be told to
_TELLING_S = 20.0
_RESET_S = 1.0
_log = logging.getLogger("gliad.soul")


@dataclass(slots=True)
class _Told:
    """Of one peer: what it was told last, on which connection; when it may be tried again."""

    what: object = None
    since_s: float = -1.0
    next_s: float = 0.0


class SoulPeers:
    """The one that tells, asks and answers."""

    def __init__(self, peering: Peering, state: SoulState, paths: Paths) -> None:
        self._peering, self._state, self._paths = peering, state, paths
        self._told: dict[PeerId, _Told] = {}
        self._wake = trio.Event()
        peering.on_up.append(self._serve)
        state.on_heed = self.wake

    def wake(self) -> None:
        """Something new is known."""
        self._wake.set()

    async def run(self) -> None:
        """Tell Bodies as they connect, and as something new is known, for ever."""
        while True:
            self._wake = trio.Event()
            soul = await self.soul()
            if soul is not None:
                for connection in self.bodies(soul):
                    await self._tell(connection.peer, connection.since_s, soul)
            with trio.move_on_after(_LOOK_S):
                await self._wake.wait()

    async def soul(self) -> Soul | None:
        """This Body's; None where it has none."""
        return await trio.to_thread.run_sync(self._soul)

    def bodies(self, soul: Soul) -> list[Connection]:
        """Peers that are Bodies of it, as far as is known."""
        names = frozenset(self._state.of(soul.name).bodies)
        if not names or self._peering.why_off:
            return []
        ledger = self._peering.ledger
        entries = ((each, ledger.entry(each.peer)) for each in self._peering.host.connections())
        return [each for each, entry in entries if entry and entry.neuron in names]

    def _soul(self) -> Soul | None:
        try:
            return read_soul(self._paths.soul_key)
        except GliaError as error:
            if not isinstance(error, BadRequest):
                _log.warning("%s", error)
            return None

    async def _tell(self, peer: PeerId, since_s: float, soul: Soul) -> None:
        told_it, what = self._told.setdefault(peer, _Told()), self._state.of(soul.name).claims
        if (told_it.what, told_it.since_s) == (what, since_s):
            return
        if trio.current_time() < told_it.next_s:
            return
        try:
            with trio.fail_after(_TELLING_S):
                await self._exchange(peer, soul)
        except (GliaError, trio.TooSlowError) as error:
            told_it.next_s = trio.current_time() + _AGAIN_S
            _log.info("peer %s is not told who has what: %r", peer, error)
        except Exception:
            told_it.next_s = trio.current_time() + _AGAIN_S
            _log.exception("telling peer %s who has what failed", peer)
        else:
            told_it.what, told_it.since_s = what, since_s

    async def _exchange(self, peer: PeerId, soul: Soul) -> None:
        host = self._peering.host
        stream = await host.open(peer, CLAIMS)
        try:
            reader = Reader(stream)
            await ask_bearer(stream, reader, host.peer_id, soul)
            await tell(stream, self._signed(soul))
            await self._heed(await hear(reader), soul)
        finally:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()

    # -- answering ----------------------------------------------------------------------------

    def _serve(self) -> None:
        self._peering.host.serve(CLAIMS, self._answer, timeout_s=HANDLER_S)
        self._told.clear()

    async def _answer(self, stream: Stream) -> None:
        """Raises: PeerLost, RemoteProtocolError; the host resets the stream."""
        soul = await self.soul()
        reader, own = Reader(stream), self._peering.host.peer_id
        if not await answer_bearer(stream, reader, own, soul) or soul is None:
            await stream.reset()
            return
        await self._heed(await hear(reader), soul)
        await tell(stream, self._signed(soul))

    def _signed(self, soul: Soul) -> list[bytes]:
        return [sign_claim(claim, soul) for claim in told(self._state.of(soul.name), soul)]

    async def _heed(self, said: list[bytes], soul: Soul) -> None:
        """Raises: RemoteProtocolError, StoreError."""
        claims = await trio.to_thread.run_sync(_parsed, said)
        if any(claim.soul != soul.name for claim in claims):
            raise RemoteProtocolError("a claim of another Soul")
        await self._state.heed(*claims)


def _parsed(said: list[bytes]) -> list[Claim]:
    """Blocking. Raises: RemoteProtocolError."""
    try:
        return [parse_claim(data) for data in said]
    except MalformedParticle as error:
        raise RemoteProtocolError(error.message) from error
