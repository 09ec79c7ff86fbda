"""id, peers: who this node is on the network, and whom it knows there."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from daemon import show
from daemon.verbs.arguments import absolute
from daemon.verbs.watching import add_flags, listing
from glia.client import Client
from glia.local.messages.peers import MAX_PEER_TEXT
from glia.local.network_values import PeerValue

_ID_END = 10  # characters; how all ids begin is the same
_MAX_NAME = 24
_STARTING_S = 8
_PAUSE_S = 1.1  # a peer is not dialled twice in a second
_HEAD = (
    "PEER", "NAME", "NEURON", "TRUST", "CONNECTION", "RTT", "BLOCKS IN", "BYTES IN",
    "BLOCKS OUT", "BYTES OUT", "SPEED", "BAD", "LAST SEEN",
)  # fmt: skip


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    identity = verbs.add_parser(
        "id", parents=[common], help="who this node is, and the addresses to hand to a friend"
    )
    identity.add_argument("--json", action="store_true")
    identity.set_defaults(verb=_id)
    peers = verbs.add_parser("peers", parents=[common], help="list, add, forget, ban peers")
    add_flags(peers)
    peers.set_defaults(verb=_list)
    _add_changes(peers.add_subparsers(metavar="add|forget|ban"))


def _add_changes(changes: Any) -> None:
    add = changes.add_parser("add", help="know a peer: it is dialled now, and whenever it is gone")
    add.add_argument("address", metavar="MULTIADDR", help="as gliad id shows it there")
    add.set_defaults(verb=_add)
    forget = changes.add_parser("forget", help="disconnect a peer, and know nothing of it")
    forget.set_defaults(verb=_forget)
    ban = changes.add_parser("ban", help="refuse a peer from now on")
    ban.add_argument("--undo", action="store_true", help="no longer")
    ban.set_defaults(verb=_ban)
    for verb in (forget, ban):
        verb.add_argument("peer", type=_peer, metavar="PEER", help="its id, or how that ends")
    for verb in (add, forget, ban):  # what stands behind must not lose what `peers` parsed
        verb.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
        verb.add_argument("--data-dir", type=absolute, metavar="DIR", default=argparse.SUPPRESS)


def _peer(text: str) -> str:
    if not 0 < len(text) <= MAX_PEER_TEXT:
        raise argparse.ArgumentTypeError("not a peer's id, nor how one ends")
    return text


def _id(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        found = client.identity()
    if args.json:
        show.as_json(
            {"peer_id": found.peer_id, "neuron": found.neuron, "addresses": found.addresses}
        )
        return 0
    show.line(f"peer    {found.peer_id}")
    show.line(f"neuron  {found.neuron.hex()}")
    for address in found.addresses:
        show.line(f"address {address}")
    if not found.addresses:
        show.note("the network is off just now: gliad status says why")
    return 0


def _list(args: argparse.Namespace) -> int:
    return listing(args, Client.peers, _show)


def _add(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        peer = _awaited(client, args.address)
    again = "is not there yet: it is kept, and dialled again, at least once a minute"
    state = "is connected" if peer.connection else again
    return _changed(args, peer, f"peer {peer.peer} {state}")


def _awaited(client: Client, address: str) -> PeerValue:
    """A peer that is added; for a few seconds it may still be starting."""
    progress, began_s = show.ProgressLine(), time.monotonic()
    peer = client.add_peer(address)
    try:
        while not peer.connection and (waited_s := time.monotonic() - began_s) < _STARTING_S:
            progress("it is not there yet, it may be starting", int(waited_s), _STARTING_S)
            time.sleep(_PAUSE_S)
            peer = client.add_peer(address)
    finally:
        progress.clear()
    return peer


def _forget(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        client.forget_peer(args.peer)
    show.note(f"peer {args.peer} is forgotten")
    return 0


def _ban(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        peer = client.ban_peer(args.peer, banned=not args.undo)
    state = "is banned" if peer.banned else "is banned no longer"
    return _changed(args, peer, f"peer {peer.peer} {state}")


def _changed(args: argparse.Namespace, peer: PeerValue, said: str) -> int:
    if args.json:
        show.as_json(peer)
    else:
        show.note(said)
    return 0


def _show(peers: Sequence[PeerValue]) -> None:
    show.table(_HEAD, [_row(peer, time.time()) for peer in peers])


def _row(peer: PeerValue, now_s: float) -> tuple[str, ...]:
    return (
        f"…{peer.peer[-_ID_END:]}",
        _name(peer.name),
        peer.neuron[:12] or "unknown",
        peer.trust,
        "banned" if peer.banned else peer.connection or "none",
        "unknown" if peer.rtt_s is None else f"{1000 * peer.rtt_s:,.1f} ms",
        f"{peer.blocks_in:,}",
        show.size(peer.bytes_in),
        f"{peer.blocks_out:,}",
        show.size(peer.bytes_out),
        "unknown" if peer.speed is None else f"{show.size(int(peer.speed))}/s",
        f"{peer.num_bad:,}",
        _seen(peer, now_s),
    )


def _seen(peer: PeerValue, now_s: float) -> str:
    if peer.connection:
        return "now"
    return f"{show.span(now_s - peer.seen_s)} ago" if peer.seen_s else "never"


def _name(said: str) -> str:
    """What a peer says that it is can be anything."""
    shown = show.plain(said) or "unknown"
    return shown if len(shown) <= _MAX_NAME else shown[: _MAX_NAME - 1] + "…"
