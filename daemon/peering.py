"""What this node has on the network: its ports, what it knows of peers, what it offers them."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import trio

from daemon.believing import Believing
from daemon.introducing import Introducing
from daemon.joining import Join, Ports, libp2p_join, limits_for, num_files
from daemon.keeping import Keeping
from daemon.network_config import NetworkConfig, ip_of
from daemon.neuron_file import NeuronFile
from daemon.neuron_key import neuron_signer, peer_seed
from daemon.paths import Paths
from daemon.peer_file import PeerFile
from daemon.remembering import Remembering
from glia.errors import BadRequest, GliaError, NetworkError, PeerUnreachable
from glia.graph.ids import ModelId, PrefixKey
from glia.graph.link import Link
from glia.graph.neuron import Signer
from glia.graph.profile import KvScheme
from glia.graph.window import WindowRecord
from glia.store.heard import Heard
from glia.store.published import Published
from p2p.bulk.client import BulkDialer
from p2p.bulk.server import BulkServer
from p2p.choosing import by_turns
from p2p.crowds import crowd_among
from p2p.getter import Close
from p2p.group_relay import NothingKept
from p2p.group_serving import CatalogueOf, GroupProvider, Nothing, OfferOf
from p2p.hints import Hints
from p2p.host import Connection, Directory, Found, Gossip, Host, PeerId, Stream
from p2p.introducing import INTRODUCTION, introducer
from p2p.messages import BLOCKS, FIND
from p2p.offer import Offer
from p2p.provider import InThreads, Provider, RunBlocking, Served
from p2p.showing import GROUP_BLOCKS
from p2p.spare import SpareStreams
from p2p.upload import UploadLimit

Overheard = Callable[[KvScheme, Sequence[WindowRecord], Sequence[Link]], Awaitable[None]]
_STARTED = trio.TASK_STATUS_IGNORED
_FIRST_PAUSE_S = 1.0
_LAST_PAUSE_S = 60.0
_STEADY_S = 60.0  # a network that held so long is joined again at once
_MAX_PREPARED = 4
_log = logging.getLogger("gliad.peering")


class Peering:
    """The network of a node that is not offline.

    It outlives the ports: where these fail they are made anew, so ask `host`, `directory` and
    `gossip` each time.

    Attributes:
        ledger, published, heard: what is known of peers, shown to peers, heard from peers.
        neurons: what is known of those that sign; who changes what counts has it saved
            (save_neurons).
        kept: the peers that are dialled again and again.
        hints: who said on a topic that it has what.
        believing: whose word counts.
        signer: this node's neuron.
        verify: calls what verifies signatures.
        counters: of faults, and of the bulk path.
        why_off: why the network is off now; "" while it is on.
        settled: set when it is on for the first time, or was seen not to come on.
        overheard: told of links that hold, with how the windows of the chain are stored that they
            attest.
        on_up: called each time that new ports are on the network; topics are to be joined again.
    """

    def __init__(
        self,
        config: NetworkConfig,
        join: Join,
        signer: Signer,
        published: Published,
        heard: Heard,
        file: PeerFile,
        neuron_file: NeuronFile,
    ) -> None:
        self._config, self._join = config, join
        self.signer, self.published, self.heard = signer, published, heard
        self.counters = Counter[str]()
        self._remembering = Remembering(file, neuron_file, config.bootstrap, self.counters)
        self.ledger, self.kept = self._remembering.ledger, self._remembering.kept
        self.neurons = self._remembering.neurons
        self.save_neurons = self._remembering.save_neurons
        self.overheard: Overheard = _nothing
        self.hints = Hints(
            secrets.token_bytes(32),
            self.ledger.is_proven,
            lambda peer: crowd_among(self._connections(), peer),
        )
        self.believing = Believing(
            config, self.ledger, self.neurons, signer.neuron, self._connections
        )
        self.why_off = "it is being joined"
        self.settled = trio.Event()
        self.on_up: list[Callable[[], None]] = []
        self._offer: Offer | None = None
        self._offer_of: OfferOf = lambda *_: Nothing()
        self._catalogue_of: CatalogueOf = lambda *_: NothingKept()
        self._upload = UploadLimit(config.upload_bytes)
        self._spares: dict[str, SpareStreams] = {}
        self.verify: RunBlocking = InThreads(1)  # more would keep the loop from running
        self._read = InThreads()
        self._ports: Ports | None = None

    def _enter(self, nursery: trio.Nursery) -> None:
        """New ports, that live in it. Raises: NetworkError."""
        self._ports = self._join(self._changed)
        host = self._ports.host
        host.serve(INTRODUCTION, introducer(self.signer, host.peer_id))
        self._introducing = Introducing(host, self.ledger)
        self._dialer = BulkDialer(host, nursery)
        self._bulk = BulkServer(host)
        for peer, entry in self.ledger.entries():
            if entry.is_banned:
                with suppress(BadRequest):  # whoever changed the file named no peer
                    host.ban(peer, True)
        self.directory.is_proven = self.ledger.is_proven
        self.directory.rendezvous = self._rendezvous
        self._provide()

    def _rendezvous(self) -> list[PeerId]:
        """Whom the user named, as far as they are connected."""
        kept = {*self.kept.peers()}
        return [each.peer for each in self.host.connections() if each.peer in kept]

    @property
    def ports(self) -> Ports:
        """The last that were made. Raises: NetworkError where none were yet."""
        if self._ports is None:
            raise NetworkError(f"the network is not on: {self.why_off}", hint="gliad status")
        return self._ports

    @property
    def host(self) -> Host:
        return self.ports.host

    @property
    def directory(self) -> Directory:
        return self.ports.directory

    @property
    def gossip(self) -> Gossip:
        return self.ports.gossip

    def counts(self) -> dict[str, int]:
        """What `status` shows of it. The bulk path's are those of the ports there are now."""
        if self._ports is None:
            return dict(self.counters)
        bulk = self._dialer.counters + self._bulk.counters
        served = {f"bulk_{name}": num for name, num in bulk.items()}
        served["keys_crowded"] = self.directory.num_crowded
        return {**self.counters, **served}

    # -- what others do with it ---------------------------------------------------------------

    def serve(
        self,
        offer: Offer,
        offer_of: OfferOf = lambda *_: Nothing(),
        catalogue_of: CatalogueOf = lambda *_: NothingKept(),
    ) -> None:
        """Answer peers from these, now and on ports to come.

        Args:
            offer_of: what is somebody's by right.
            catalogue_of: what is told who relays.
        """
        self._offer, self._offer_of, self._catalogue_of = offer, offer_of, catalogue_of
        self._provide()

    def _provide(self) -> None:
        if self._offer is not None and self._ports is not None:
            provider = self.provider_of(self._offer)
            provider.serve_on(self.host)
            self._bulk.serve(BLOCKS, provider.blocks)
            in_groups = GroupProvider(provider, self._offer_of, self._read, self._catalogue_of)
            in_groups.serve_on(self.host)
            self._bulk.serve(GROUP_BLOCKS, in_groups.blocks)

    def provider_of(self, offer: Offer) -> Provider:
        """Another one, within the same upload limit; its user has it serve."""
        return Provider(offer, self._told, self._upload, self._read)

    async def open_stream(self, peer: PeerId, protocol: str) -> Stream:
        """To a peer; blocks take the bulk path where there is one.

        Raises: PeerUnreachable, PeerRefused.
        """
        spares = self._spares.get(protocol)
        return await (spares.open(peer) if spares else self._open(peer, protocol))

    def prepare(self) -> None:
        """Open streams to some of who is connected: one will soon be asked."""
        connected = self.ledger.ranked(each.peer for each in self.host.connections())
        for spares in self._spares.values():
            spares.prepare(connected[:_MAX_PREPARED])

    async def _open(self, peer: PeerId, protocol: str) -> Stream:
        if protocol in (BLOCKS, GROUP_BLOCKS):
            return await self._dialer.open(peer, protocol)
        return await self.host.open(peer, protocol)

    async def meet(self, found: Found) -> bool:
        """Connect to a peer. Returns: whether it was not connected. Raises: PeerUnreachable,
        PeerRefused."""
        if any(each.peer == found.peer for each in self.host.connections()):
            return False
        why: GliaError = PeerUnreachable(f"no address of peer {found.peer} is known")
        for address in found.addresses:
            try:
                await self.host.connect(address)
            except PeerUnreachable as error:
                why = error
            else:
                return True
        raise why

    async def part(self, peer: PeerId) -> None:
        """Let go of a peer that was met and had nothing. Never raises."""
        await self.host.disconnect(peer)

    def peers_of(self, model_id: ModelId, keys: Sequence[PrefixKey] = ()) -> list[PeerId]:
        """Whom to ask for a model, the best first.

        Who said on its topic to have one of these keys, in turn with who gave some of it
        before: anybody can say so. Then who is connected.
        """
        said = [peer for peer in self.hints.peers(keys) if not self.ledger.is_banned(peer)]
        first = dict.fromkeys(by_turns(said, self.ledger.peers_of(model_id)))
        connected = dict.fromkeys(each.peer for each in self.host.connections())
        return [*first, *self.ledger.ranked(peer for peer in connected if peer not in first)]

    def _connections(self) -> Sequence[Connection]:
        return self._ports.host.connections() if self._ports is not None else ()

    def lied(self, peer: PeerId) -> None:
        """It sent what it must not; three times, and it is banned."""
        if self.ledger.lied(peer, time.time()):
            _log.warning("peer %s is banned: it sent what it must not", peer)
            self.counters["peers_banned"] += 1
            self.host.ban(peer, True)

    def done(self, close: Close, model_id: ModelId) -> None:
        """A fetch is done with a peer."""
        now_s = time.time()
        if close.num_blocks:
            self.ledger.gave(close.peer, model_id, close.num_blocks, close.num_bytes, now_s)
            for spares in self._spares.values():  # whoever gave is asked again soon
                spares.prepare([close.peer])
        if close.speed is not None:
            self.ledger.measured(close.peer, now_s, speed=close.speed)
        if close.verdict.is_bad:
            self.lied(close.peer)

    def _told(self, peer: PeerId, served: Served) -> None:
        if served.is_bad:
            self.lied(peer)
        elif served.num_blocks:
            self.ledger.took(peer, served.num_blocks, served.num_bytes, time.time())

    def _changed(self, peer: PeerId, is_connected: bool) -> None:
        self.ledger.seen(peer, time.time())
        self._introducing.wake()

    # -- its life -----------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = _STARTED) -> None:
        """Be on the network until cancelled; started when it is, or cannot be.

        A fault of the network ends its connections, and nothing else.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stay)
                nursery.start_soon(self._remembering.run)
                await self.settled.wait()
                task_status.started()
        finally:
            self._remembering.save()

    async def _stay(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began_s = trio.current_time()
            try:
                await self._live()
            except* Exception as error:
                self._failed(error)
            self.settled.set()
            is_steady = trio.current_time() - began_s >= _STEADY_S
            pause_s = _FIRST_PAUSE_S if is_steady else min(2 * pause_s, _LAST_PAUSE_S)
            await trio.sleep(pause_s)

    async def _live(self) -> None:
        async with trio.open_nursery() as nursery:
            self._enter(nursery)
            await nursery.start(self._run_ports)
            nursery.start_soon(self._serve_bulk)
            self.why_off = ""
            _log.info("the network is on: %s", ", ".join(self.host.addresses()) or "no address")
            for tell in self.on_up:
                tell()
            self.settled.set()
            nursery.start_soon(Keeping(self.host, self.kept, self.ledger).run)
            nursery.start_soon(self._introducing.run)
            try:
                for name in (FIND, BLOCKS):
                    opens = partial(self._open, protocol=name)
                    self._spares[name] = SpareStreams(self.host, opens, nursery)
                await trio.sleep_forever()
            finally:
                self._spares.clear()

    async def _run_ports(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self.ports.run(task_status=task_status)
        raise NetworkError("the network ended by itself")

    async def _serve_bulk(self) -> None:
        """On the IP address that is listened on first; without it, blocks take libp2p streams."""
        if not self._config.listen:
            return
        try:
            await self._bulk.listen(ip_of(self._config.listen[0]))
        except OSError as error:
            _log.warning("no bulk path: %s", error)
        else:
            await self._bulk.run()

    def _failed(self, error: BaseException) -> None:
        first = _first(error)
        is_known = isinstance(first, GliaError)
        self.why_off = first.message if isinstance(first, GliaError) else repr(first)
        self.counters["network_faults"] += 1
        _log.error("the network is off: %s", self.why_off, exc_info=None if is_known else error)


def _first(error: BaseException) -> BaseException:
    """What is in a group of errors, and in the groups in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def open_peering(
    config: NetworkConfig, paths: Paths, agent: str, published: Published, stack: ExitStack
) -> Peering | None:
    """The network that the settings ask for, not yet on; None where they ask for none.

    Raises: BadRequest (a key's file is not private), StoreError.
    """
    if not config.enabled:
        return None
    signer = neuron_signer(paths.neuron_key)
    join = libp2p_join(config, peer_seed(paths.peer_key), limits_for(num_files()), agent)
    heard = Heard(paths.heard)
    stack.callback(heard.close)
    files = PeerFile(paths.peers), NeuronFile(paths.neurons)
    return Peering(config, join, signer, published, heard, *files)


async def _nothing(
    _scheme: KvScheme, _chain: Sequence[WindowRecord], _links: Sequence[Link]
) -> None:
    """Nobody listens."""
