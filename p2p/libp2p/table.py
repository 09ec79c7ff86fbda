"""The library's routing table, so that only who answered this node is in it (p2p/contacts.py).

The library's takes in whomever an answer names, whoever is asked, whether it answers or not, and
whoever asks; and it waits for a ping of the oldest where a bucket is full.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import trio
from libp2p.abc import IHost
from libp2p.kad_dht.routing_table import RoutingTable
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo

from p2p.contacts import BUCKET_SIZE, Contacts
from p2p.host import PeerId
from p2p.libp2p import caps
from p2p.libp2p.names import peer_object, peer_text


class GuardedTable(RoutingTable):
    """Its buckets stay empty: who is known is in `contacts`.

    Attributes:
        removed: peers of which the library said that they failed; whoever asked one looks here.
    """

    def __init__(self, own: ID, host: IHost) -> None:
        super().__init__(own, host)
        self.contacts = Contacts(peer_text(own), place_of)
        self.removed: set[ID] = set()

    async def add_peer(
        self, peer_obj: PeerInfo | ID, *, skip_server_mode_check: bool = False
    ) -> bool:
        """A peer that connected or asks is looked at later; one that was heard of is nothing."""
        if isinstance(peer_obj, PeerInfo):
            return False
        if skip_server_mode_check or self._serves(peer_obj):
            self.contacts.asked(peer_text(peer_obj), trio.current_time())
        return True

    def remove_peer(self, peer_id: ID) -> bool:
        self.removed.add(peer_id)
        return True

    def find_local_closest_peers(self, key: bytes, count: int = BUCKET_SIZE) -> list[ID]:
        """Of those that are known or connected: what others are told."""
        connected = [
            peer_text(each) for each in self.host.get_connected_peers() if self._serves(each)
        ]
        found = self.contacts.closest(target_of(key), connected, count)
        return [peer_object(each) for each in found]

    def _serves(self, peer: ID) -> bool:
        """Whether it said that it speaks the DHT's protocol."""
        try:
            return str(caps.KAD_PROTOCOL) in self.host.get_peerstore().get_protocols(peer)
        except Exception:  # the library raises where it knows nothing of a peer
            return False


def target_of(key: bytes) -> int:
    """Where a key lies among the peers, as Kademlia has it."""
    return int.from_bytes(hashlib.sha256(key).digest(), "big")


@lru_cache(maxsize=4096)
def place_of(peer: PeerId) -> int:
    """Where a peer stands among all."""
    return target_of(ID.from_base58(peer).to_bytes())
