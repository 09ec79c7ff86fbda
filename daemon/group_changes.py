"""What changes in a group: decisions, without files or network.

Whoever made a group is its issuer: it alone says who is revoked, and begins epochs.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable
from dataclasses import replace

from msgspec import structs

from daemon.group_file import EpochRow, GroupRow, MemberRow
from glia.errors import BadRequest, NotPermitted, QuotaExceeded
from glia.graph.claims import PeerKey
from glia.graph.epoch_statement import state_epoch
from glia.graph.group import SECRET_BYTES, Epoch, GroupSecret
from glia.graph.member import Card
from glia.graph.neuron import SEED_BYTES, Signer
from glia.graph.revoked import MAX_HOLDERS, MAX_TOKENS, Revoked, parse_revoked, sign_revoked
from glia.graph.scope import Op

EPOCH_S = 7 * 24 * 3600
MAX_KEPT_EPOCHS = 1024  # what is of one that is not kept can be neither read nor taken back
LIST_S = 1800  # then a list is signed anew, though nothing changed
MAX_MEMBERS = 128
_MAX_HOLDERS_EACH = 16


def new_group(name: str, now_s: int) -> GroupRow:
    """A group whose issuer is this node."""
    issuer = Signer(seed := secrets.token_bytes(SEED_BYTES))
    secret = GroupSecret(secrets.token_bytes(SECRET_BYTES))
    return GroupRow(
        name=name,
        issuer=issuer.neuron,
        seed=seed,
        secret=secret,
        epochs=(_epoch(issuer, secret, 1, now_s),),
        revoked=sign_revoked(issuer, Revoked(issuer.neuron, 1, now_s)),
    )


def rotated(row: GroupRow, now_s: int) -> GroupRow:
    """With a new epoch. Raises: NotPermitted (this node is not the issuer)."""
    issuer, keys = issuer_of(row), row.keys
    if keys is None:
        return row
    number = keys.current.number + 1
    epochs = (*row.epochs, _epoch(issuer, keys.secret, number, now_s))
    return structs.replace(row, epochs=epochs[-MAX_KEPT_EPOCHS:])


def stated(row: GroupRow) -> GroupRow:
    """With all epochs signed, where this node is the issuer: in old files they are not."""
    keys = row.keys
    if not row.is_issuer or keys is None or all(keys.statements):
        return row
    issuer = issuer_of(row)
    epochs = tuple(
        structs.replace(each, statement=state_epoch(issuer, epoch, keys.secret))
        for each, epoch in zip(row.epochs, keys.epochs, strict=True)
    )
    return structs.replace(row, epochs=epochs)


def rotated_if_due(row: GroupRow, now_s: int) -> GroupRow:
    """With a new epoch where this node is the issuer, and the last one has lasted long enough."""
    is_due = row.is_issuer and now_s - row.epochs[-1].began_s >= EPOCH_S
    return rotated(row, now_s) if is_due else row


def issuer_of(row: GroupRow) -> Signer:
    """Raises: NotPermitted."""
    if row.seed is None:
        raise NotPermitted(
            f"group {row.name} was made on another node, which alone can do that",
            hint=f"gliad group show {shlex.quote(row.name)} says where that is: ask there",
        )
    return Signer(row.seed)


def _epoch(issuer: Signer, secret: GroupSecret, number: int, now_s: int) -> EpochRow:
    epoch = Epoch(number, secrets.token_bytes(SECRET_BYTES))
    return EpochRow(number, epoch.key, now_s, state_epoch(issuer, epoch, secret))


# -- revocation lists ------------------------------------------------------------------------


def list_of(row: GroupRow) -> Revoked:
    """The last list."""
    return parse_revoked(row.revoked, row.group_id)


def relisted(row: GroupRow, now_s: int) -> GroupRow:
    """With a fresh list, where that is due and this node signs it."""
    last = list_of(row)
    is_fresh = 0 <= now_s - last.time_s < LIST_S  # one of the future serves nobody: clocks jump
    if not row.is_issuer or is_fresh:
        return row
    return _with_list(row, last, now_s)


def _with_list(row: GroupRow, said: Revoked, now_s: int) -> GroupRow:
    if len(said.holders) > MAX_HOLDERS or len(said.tokens) > MAX_TOKENS:
        raise QuotaExceeded(
            f"so many were revoked in group {row.name} that its list is full",
            hint="gliad group create, and grant those that stay",
        )
    last = list_of(row)
    said = replace(said, sequence=last.sequence + 1, time_s=now_s)
    return structs.replace(row, revoked=sign_revoked(issuer_of(row), said))


# -- members ---------------------------------------------------------------------------------


def granted(row: GroupRow, member: MemberRow, now_s: int) -> GroupRow:
    """With a member, in place of what was granted the same one before.

    Raises: QuotaExceeded, BadRequest.
    """
    if member.until_s is not None and member.until_s <= now_s:
        raise BadRequest("what is granted would be over already", hint="--expires 1h")
    same = [each for each in row.members if is_same(each, member)]
    if Op.RELAY in Op(member.ops):
        _check_relay(row, member, same)
    holders = tuple(dict.fromkeys(key for each in same for key in each.holders))
    known = structs.replace(
        member,
        neuron=member.neuron or next((each.neuron for each in same if each.neuron), None),
        peer=member.peer or next((each.peer for each in same if each.peer), None),
        holders=holders[-_MAX_HOLDERS_EACH:],
    )
    others = tuple(each for each in row.members if each not in same)
    if len(others) >= MAX_MEMBERS:
        raise QuotaExceeded(f"group {row.name} has {MAX_MEMBERS} members", hint="gliad revoke")
    return structs.replace(row, members=(*others, known))


def _check_relay(row: GroupRow, member: MemberRow, same: list[MemberRow]) -> None:
    """Raises: BadRequest."""
    if Op.DELEGATE in Op(member.ops):
        raise BadRequest("whoever relays has no keys to hand on", hint="--ops relay")
    if any(map(_knows_keys, same)):
        raise BadRequest(
            f"that node is a member of group {row.name}, and has its keys",
            hint="gliad revoke, then grant it relay; there: gliad group leave, then join",
        )


def revoked(row: GroupRow, members: Iterable[MemberRow], now_s: int) -> GroupRow:
    """Without members: what they hold is no longer good, and where they know a key a new epoch
    begins.

    Raises: NotPermitted, QuotaExceeded.
    """
    gone = list(members)
    keys = {PeerKey(key) for each in gone for key in (*each.holders, each.peer) if key is not None}
    said = list_of(row)
    row = _with_list(row, replace(said, holders=said.holders | keys), now_s)
    row = _without(row, gone)
    return rotated(row, now_s) if any(map(_knows_keys, gone)) else row


def revoked_token(row: GroupRow, token_id: bytes, now_s: int) -> GroupRow:
    """With one token that is no longer good. Raises: NotPermitted, QuotaExceeded."""
    issuer_of(row)
    said = list_of(row)
    return _with_list(row, replace(said, tokens=said.tokens | {token_id}), now_s)


def expired(row: GroupRow, now_s: int) -> GroupRow:
    """Without those whose time is over. Where they know a key, a new epoch begins."""
    over = [each for each in row.members if each.until_s is not None and each.until_s <= now_s]
    if not over:
        return row
    row = _without(row, over)
    return rotated(row, now_s) if row.is_issuer and any(map(_knows_keys, over)) else row


def _knows_keys(member: MemberRow) -> bool:
    return Op.RELAY not in Op(member.ops)


def _without(row: GroupRow, gone: list[MemberRow]) -> GroupRow:
    left = tuple(each for each in row.members if each not in gone)
    return structs.replace(row, members=left)


def is_same(one: MemberRow, other: MemberRow) -> bool:
    """Whether two grants are to the same one."""
    return (one.neuron is not None and one.neuron == other.neuron) or (
        one.peer is not None and one.peer == other.peer
    )


def met(row: GroupRow, card: Card, now_s: int) -> tuple[GroupRow, MemberRow | None]:
    """The member that a card is of, with what the card says of it; None where it is none.

    Whose key was revoked, and who was granted something again, is revoked no longer.
    Raises: QuotaExceeded (of its keys no more can be remembered, to be revoked one day).
    """
    for member in row.members:
        if member.neuron == card.neuron or (member.neuron is None and member.peer == card.peer):
            holders = tuple(dict.fromkeys((*member.holders, card.peer)))
            if len(holders) > _MAX_HOLDERS_EACH:
                raise QuotaExceeded(
                    f"a member of group {row.name} has had {_MAX_HOLDERS_EACH} peer keys",
                    hint="gliad revoke, and grant it again",
                )
            now = structs.replace(member, neuron=card.neuron, peer=card.peer, holders=holders)
            members = tuple(now if each is member else each for each in row.members)
            row = structs.replace(row, members=members)
            said = list_of(row)
            if row.is_issuer and card.peer in said.holders:
                row = _with_list(row, replace(said, holders=said.holders - {card.peer}), now_s)
            return row, now
    return row, None
