"""The groups that this node is in: what it may read, whom it serves, whom it grants what.

The only owner of their secrets. Looking is for any thread and never blocks; changes are written
before they count, one after the other, in worker threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

from msgspec import structs

from daemon import group_changes as changes
from daemon import issuing
from daemon.group_file import GroupFiles, GroupRow, MemberRow
from daemon.group_rights import GroupRights, Identity
from daemon.neuron_key import neuron_signer, open_box, peer_seed
from daemon.paths import Paths
from glia.errors import BadRequest, GliaError, NotFound, NotPermitted, QuotaExceeded
from glia.graph.capability import parse_chain
from glia.graph.grant import MAX_HOMES, Given, parse_grant, sign_grant
from glia.graph.group import GroupId, GroupSecret
from glia.graph.ids import short
from glia.graph.member import Box, Card, Keys, sign_card
from glia.graph.neuron import Signer
from glia.graph.scope import Op, Scope
from p2p.host import PeerId

MAX_GROUPS = 64
_MAX_CHAINS = 1024
_SHORTEST = 4  # hex digits of an id, to name it by
_log = logging.getLogger("gliad.groups")


class Groups:
    """All groups of a node.

    Attributes:
        homes: where this node can be dialled: told to whoever is granted something.
        on_change: told, in any thread, when what members may do or know has changed.
    """

    def __init__(
        self,
        files: GroupFiles,
        box: Callable[[], Box],
        identity: Identity | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Args:
            box: asked when it is needed first: who is in no group has none.
            identity: None of a node without a network.
        Raises: BadRequest (a file is open to others), StoreBroken.
        """
        self._files, self._box, self._now = files, box, now
        self._rights = GroupRights(identity, now)
        self.homes: Callable[[], Sequence[str]] = tuple
        self.on_change: Callable[[], None] = lambda: None
        self._lock = threading.Lock()  # of changes, which wait for the disk
        self._rows: dict[GroupId, GroupRow] = {}
        self._keys: dict[GroupId, Keys] = {}
        self._troubles: dict[GroupId, str] = {}
        self._leaving: set[GroupId] = set()
        self._ended: set[GroupId] = set()
        for row in files.load():
            self._put(changes.stated(row))

    # -- what the data path asks -------------------------------------------------------------

    def keys(self, group: GroupId) -> Keys | None:
        """Secret and epochs; None of a group that this node is not in."""
        return self._keys.get(group)

    def is_in(self, group: GroupId) -> bool:
        """Whether this node is in it, and is not leaving it now."""
        return group in self._keys and group not in self._leaving

    def secret_of(self, group: GroupId) -> GroupSecret | None:
        """What its domain is salted with."""
        keys = self._keys.get(group)
        return None if keys is None else keys.secret

    def check(self, group: GroupId, capability: bytes, peer: PeerId) -> Scope:
        """What a peer may have of a group here. Raises: NotPermitted, whatever the reason."""
        row = self._rows.get(group)
        if row is not None and row.is_relay:
            self.capability(group)  # who may have nothing any more gives nothing
        return self._rights.check(group, capability, peer)

    def capability(self, group: GroupId) -> bytes:
        """What to show others of the group. Raises: NotFound, NotPermitted (it is over)."""
        row, holder = self.row(group), self._rights.identity.peer_key
        if row.is_issuer:
            everything = MemberRow(ops=int(Op.FETCH | Op.ANNOUNCE), granted_s=0)
            return self._rights.chain(row, everything, holder, issuing.LIFE_S).encoding
        is_over = parse_chain(row.chain).scope.expires_s <= self._now()
        if is_over or group in self._ended:
            raise NotPermitted(
                f"what this node may in group {row.name} is over",
                hint=f"gliad group join {next(iter(row.homes), 'GRANT')}",
            )
        return row.chain

    # -- what people ask ---------------------------------------------------------------------

    def all(self) -> list[GroupRow]:
        """By name."""
        return sorted(self._rows.values(), key=lambda row: row.name)

    def row(self, group: GroupId) -> GroupRow:
        """Raises: NotFound."""
        found = self._rows.get(group)
        if found is None:
            raise NotFound(f"this node is not in group {short(group)}", hint="gliad group list")
        return found

    def named(self, text: str) -> GroupRow:
        """By its name here, or how its id begins. Raises: NotFound, BadRequest (ambiguous)."""
        rows = self.all()
        found = [row for row in rows if row.name == text]
        if not found and len(text) >= _SHORTEST:
            found = [row for row in rows if row.group_id.hex().startswith(text)]
        if not found:
            raise NotFound(f"this node is in no group {text!r}", hint="gliad group list")
        if len(found) > 1:
            raise BadRequest(f"{text!r} does not say which group", hint="gliad group list --json")
        return found[0]

    def create(self, name: str) -> GroupRow:
        """A group whose issuer this node is. Raises: BadRequest, QuotaExceeded, StoreBroken."""
        with self._lock:
            self._check_room()
            if any(row.name == name for row in self._rows.values()):
                raise BadRequest(f"there is a group {name!r} already", hint="gliad group list")
            return self._write(changes.new_group(name, self._now_s()))

    @contextmanager
    def leaving(self, group: GroupId) -> Iterator[None]:
        """From now on nothing is said to it."""
        self._leaving.add(group)
        try:
            yield
        finally:
            self._leaving.discard(group)

    def leave(self, group: GroupId) -> None:
        """Its secrets go. Raises: NotFound, StoreBroken."""
        with self._lock:
            row = self.row(group)
            self._files.remove(group)
            del self._rows[group]
            self._keys.pop(group, None)
            self._ended.discard(group)
            self._troubles.pop(group, None)
            self._rights.drop(group)
        _log.info("group %s was left", short(row.group_id))
        self.on_change()

    def change(self, group: GroupId, how: Callable[[GroupRow, int], GroupRow]) -> GroupRow:
        """A group as `how` makes it, written. Raises: NotFound, StoreBroken, what `how` does."""
        with self._lock:
            row = self.row(group)
            changed = how(row, self._now_s())
            if changed == row:
                return row
            self._write(changed)
        self.on_change()
        return changed

    def grant(self, group: GroupId, member: MemberRow) -> GroupRow:
        """Raises: NotFound, NotPermitted (this node may not), QuotaExceeded, BadRequest."""
        row = self.row(group)
        issuing.scope_of(row, member, self._now_s(), issuing.LIFE_S)
        return self.change(group, lambda row, now_s: changes.granted(row, member, now_s))

    def card(self) -> bytes:
        """What to show whoever grants. Raises: NotPermitted (this node has no network)."""
        identity = self._rights.identity
        return sign_card(identity.neuron, identity.peer_key, self._box().key, self._now_s())

    # -- what nodes give each other ----------------------------------------------------------

    def grants_for(self, card: Card) -> list[bytes]:
        """A grant of each group in which the card's node is granted something here.

        Raises: StoreBroken, MalformedParticle (the card's key is none).
        """
        grants = []
        with self._lock:
            for group in list(self._rows):
                try:
                    row, member = changes.met(self._rows[group], card, self._now_s())
                    if member is None:
                        continue
                    row = changes.relisted(row, self._now_s())
                    if row != self._rows[group]:
                        self._write(row)
                    grants.append(self._grant(row, member, card, issuing.LIFE_S))
                except (NotPermitted, QuotaExceeded) as error:
                    _log.info("group %s: nothing is granted: %s", short(group), error)
        return grants

    def grant_for(self, group: GroupId, card: Card, life_s: int) -> bytes:
        """The grant of one group. Raises: NotFound, NotPermitted, MalformedParticle."""
        row = self.change(group, lambda row, now_s: changes.met(row, card, now_s)[0])
        _, member = changes.met(row, card, self._now_s())
        if member is None:
            raise NotFound(f"group {row.name} grants that node nothing", hint="gliad grant")
        return self._grant(row, member, card, life_s)

    def take(self, data: bytes) -> GroupRow:
        """Be a member by a grant that this node was given.

        Raises: MalformedParticle, BadRequest, QuotaExceeded, StoreBroken.
        """
        return self._take(self._read(data))

    def renew(self, data: bytes) -> GroupId:
        """The same, of a group that this node is in: of another, nothing is done.

        Returns: its group.
        """
        given = self._read(data)
        if given.group in self._rows:
            try:
                self._take(given, renews=True)
            except GliaError as error:
                self._troubles[given.group] = error.message
                raise
            self._troubles.pop(given.group, None)
        return given.group

    def ended(self, group: GroupId) -> None:
        """Whoever granted this node that it relays grants it nothing any more, until it does."""
        row = self._rows.get(group)
        if row is not None and row.is_relay and group not in self._ended:
            self._ended.add(group)
            self._troubles[group] = "its home grants nothing any more: nothing is relayed"
            self.on_change()

    def trouble(self, group: GroupId) -> str:
        """Why the last grant that came by itself was not taken; "" where it was."""
        return self._troubles.get(group, "")

    # -- inside ------------------------------------------------------------------------------

    def _read(self, data: bytes) -> Given:
        return parse_grant(data, self._box(), self._rights.peer_key)

    def _take(self, given: Given, *, renews: bool = False) -> GroupRow:
        with self._lock:
            known = self.row(given.group) if renews else self._rows.get(given.group)
            row = issuing.joined(known, given, self._now_s())
            self._ended.discard(given.group)
            if known is None:
                self._check_room()
                row = structs.replace(row, name=self._free_name(row))
            elif structs.replace(row, given_s=known.given_s) == known:
                return known
            self._write(row)
        self.on_change()
        return row

    def _grant(self, row: GroupRow, member: MemberRow, card: Card, life_s: int) -> bytes:
        chain = self._rights.chain(row, member, card.peer, life_s)
        homes = tuple(self.homes())[:MAX_HOMES]
        signer = changes.issuer_of(row) if row.is_issuer else self._rights.identity.peer
        return sign_grant(signer, card, issuing.given_to(row, chain, homes, self._now_s()))

    def _check_room(self) -> None:
        if len(self._rows) >= MAX_GROUPS:
            raise QuotaExceeded(f"this node is in {MAX_GROUPS} groups", hint="gliad group leave")

    def _free_name(self, row: GroupRow) -> str:
        taken = {each.name for each in self._rows.values()}
        return row.name if row.name not in taken else f"{row.name}-{row.group_id.hex()[:6]}"

    def _write(self, row: GroupRow) -> GroupRow:
        self._files.save(row)
        self._put(row)
        return row

    def _put(self, row: GroupRow) -> None:
        group, keys = row.group_id, row.keys
        self._rows[group] = row
        if keys is not None:
            self._keys[group] = keys
        self._rights.put(row)

    def _now_s(self) -> int:
        return int(self._now())


def open_groups(paths: Paths, *, is_on_network: bool) -> Groups:
    """A node's groups.

    Raises: BadRequest (a key's or a group's file is not private), StoreBroken.
    """
    identity = None
    if is_on_network:
        identity = Identity(neuron_signer(paths.neuron_key), Signer(peer_seed(paths.peer_key)))
    box = cache(partial(open_box, paths.box_key))
    return Groups(GroupFiles(paths.groups), box, identity)
