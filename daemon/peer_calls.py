"""What people ask of the network: who this node is there, and whom it knows."""

from __future__ import annotations

import re
from contextlib import suppress

import trio

from daemon.link import Deliver
from daemon.network_config import PEER_HINT, is_peer_address, peer_of
from daemon.parts import Parts
from daemon.peering import Peering
from daemon.publish_calls import answer as publish_answer
from daemon.reaching import reach
from daemon.whereabouts import where
from glia.errors import (
    BadRequest,
    NetworkError,
    NotFound,
    PeerRefused,
    PeerUnreachable,
    QuotaExceeded,
)
from glia.local.messages import (
    AddPeer,
    BanPeer,
    Done,
    ForgetPeer,
    Identity,
    IdentityReply,
    Peers,
    PeersReply,
    Publish,
    Reply,
    Where,
    Withdraw,
)
from glia.local.network_values import NetworkValue, PeerValue
from p2p.host import Address, Connection, PeerId
from p2p.ledger import PeerEntry

PeerCall = Identity | Peers | AddPeer | ForgetPeer | BanPeer | Where | Publish | Withdraw

_PART_PEERS = 500
_JOIN_S = 30.0  # until the network is on, after the start
_SHORTEST = 4  # characters of the end of an id, to name it by
_PEER_ID = re.compile(r"\w{46,64}")


async def answer(parts: Parts, call: PeerCall, post: Deliver) -> Reply:
    """The reply to a call. Raises: GliaError."""
    peering, shown = parts.peering, parts.shown
    if peering is None or shown is None:
        raise NetworkError(
            "this node is offline: it has no network",
            hint="gliad stop, then gliad start --listen /ip4/0.0.0.0/tcp/0",
        )
    if isinstance(call, Publish | Withdraw):
        return await publish_answer(parts, shown, call, post)
    with trio.move_on_after(_JOIN_S):
        await peering.settled.wait()
    match call:
        case Identity():
            host = peering.host
            return IdentityReply(
                call.id, host.peer_id, peering.signer.neuron, list(host.addresses())
            )
        case Peers():
            known = _values(peering)
            return PeersReply(call.id, known[call.start :][:_PART_PEERS], len(known))
        case AddPeer():
            return _one(call, peering, await _add(peering, call.address))
        case ForgetPeer():
            await _forget(peering, named_peer(peering, call.peer))
            return Done(call.id)
        case BanPeer():
            peer = PeerId(call.peer)
            if not _PEER_ID.fullmatch(call.peer):
                peer = named_peer(peering, call.peer)
            peering.host.ban(peer, call.banned)
            peering.ledger.ban(peer, call.banned, _seen_s(peering, peer))
            return _one(call, peering, peer)
        case Where():
            return await where(peering, parts.attachments, parts.registry, call)


def network_value(peering: Peering | None) -> NetworkValue | None:
    """What `status` says of it."""
    if peering is None:
        return None
    try:
        ports = peering.ports
    except NetworkError:
        return NetworkValue("", [], 0, peering.why_off)
    host, neighbours = ports.host, ports.neighbours
    return NetworkValue(
        host.peer_id,
        list(host.addresses()),
        len(host.connections()),
        peering.why_off,
        len(_known(peering)),
        "off" if neighbours is None else neighbours.state,
        ports.twin,
    )


async def _add(peering: Peering, address: str) -> PeerId:
    """Raises: BadRequest, PeerRefused, QuotaExceeded."""
    if not is_peer_address(address):
        raise BadRequest(f"not an address of a peer: {address[:60]!r}", hint=PEER_HINT)
    peer = peer_of(address)
    if peer == peering.host.peer_id:
        raise BadRequest(
            "that is this node's own peer id",
            hint="where another node has it, its data dir is a copy: stop it, remove its "
            "peer.key (and neuron.key, unless both are to sign as one), and start it again",
        )
    if peering.ledger.is_banned(peer):
        raise PeerRefused(f"peer {peer} is banned", hint=f"gliad peers ban {peer} --undo")
    with suppress(PeerUnreachable):  # then it is dialled again, and listed as not connected
        await reach(peering.host, [Address(address)])
    if not peering.kept.keep(peer, [Address(address)]):
        raise QuotaExceeded("so many peers are kept already", hint="gliad peers forget PEER")
    peering.ledger.trust(peer, "known", _seen_s(peering, peer))
    return peer


async def _forget(peering: Peering, peer: PeerId) -> None:
    peering.kept.leave(peer)
    peering.host.ban(peer, False)
    await peering.host.disconnect(peer)
    peering.ledger.forget(peer)


def named_peer(peering: Peering, text: str) -> PeerId:
    """The one known peer whose id ends like this. Raises: NotFound, BadRequest."""
    known = [value.peer for value in _values(peering)]
    found = [peer for peer in known if peer.endswith(text)]
    if len(found) == 1 and len(text) >= _SHORTEST:
        return PeerId(found[0])
    if not found:
        raise NotFound(f"no peer {text!r} is known", hint="gliad peers")
    raise BadRequest(f"{text!r} does not say which peer is meant", hint="gliad peers --json")


def _seen_s(peering: Peering, peer: PeerId) -> float:
    """When it was last there, whatever is now said of it."""
    entry = peering.ledger.entry(peer)
    return 0.0 if entry is None else entry.seen_s


def _values(peering: Peering) -> list[PeerValue]:
    connections = {each.peer: each for each in peering.host.connections()}
    known = dict(peering.ledger.entries())
    return [
        _value(peering, peer, known.get(peer), connections.get(peer)) for peer in _known(peering)
    ]


def _known(peering: Peering) -> list[PeerId]:
    """Who is connected first, then those remembered, then those that are to be dialled."""
    connected = (each.peer for each in peering.host.connections())
    remembered = (peer for peer, _ in peering.ledger.entries())
    return list(dict.fromkeys((*connected, *remembered, *peering.kept.peers())))


def _one(call: AddPeer | BanPeer, peering: Peering, peer: PeerId) -> PeersReply:
    connection = next((c for c in peering.host.connections() if c.peer == peer), None)
    entry = peering.ledger.entry(peer)
    return PeersReply(call.id, [_value(peering, peer, entry, connection)], 1)


def _value(
    peering: Peering, peer: PeerId, entry: PeerEntry | None, connection: Connection | None
) -> PeerValue:
    known = entry or PeerEntry()
    kept = peering.kept.addresses(peer)
    return PeerValue(
        peer=peer,
        name=connection.agent if connection else "",
        neuron=known.neuron,
        trust=peering.believing.acquaintance.trust_of(peer, known),
        connection=connection.direction if connection else "",
        address=connection.address if connection else next(iter(kept), ""),
        rtt_s=connection.rtt_s if connection and connection.rtt_s else known.rtt_s,
        speed=known.speed,
        blocks_in=known.blocks_in,
        bytes_in=known.bytes_in,
        blocks_out=known.blocks_out,
        bytes_out=known.bytes_out,
        num_bad=known.num_bad,
        banned=known.is_banned,
        seen_s=known.seen_s,
    )
