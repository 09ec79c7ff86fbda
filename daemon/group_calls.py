"""What people ask of groups. No state of its own."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import trio
from msgspec import structs

from daemon import group_changes as changes
from daemon.group_file import GroupRow, MemberRow
from daemon.group_values import group_values, member_value, peer_text
from daemon.groups import Groups as Table
from daemon.link import Deliver
from daemon.network_config import is_peer_address
from daemon.parts import Parts
from daemon.peer_calls import named_peer
from daemon.peering import Peering
from glia.errors import BadRequest, MalformedParticle, NotFound, NotPermitted
from glia.graph.claims import MAX_LIFE_S, TOKEN_ID_BYTES
from glia.graph.grant import CARD_TEXT, GRANT_TEXT, MAX_NAME_BYTES, as_text, of_text
from glia.graph.ids import ID_BYTES
from glia.graph.member import Card as CardOf
from glia.graph.member import parse_card
from glia.local.messages import (
    Card,
    CardReply,
    CreateGroup,
    Grant,
    GrantReply,
    Groups,
    GroupsReply,
    JoinGroup,
    LeaveGroup,
    LeftReply,
    Progress,
    Reply,
    Revoke,
    RotateGroup,
    ShowGroup,
)
from p2p.host import PeerId
from p2p.peer_key import key_of

GroupCall = (
    Groups | ShowGroup | CreateGroup | RotateGroup | LeaveGroup | JoinGroup | Card | Grant | Revoke
)

_NEURON = re.compile(rf"[0-9a-fA-F]{{{2 * ID_BYTES}}}")
_SHORTEST = 4  # characters to name somebody by
_TOKEN = re.compile(rf"[0-9a-fA-F]{{{2 * TOKEN_ID_BYTES}}}")


@dataclass(frozen=True)
class _Whom:
    """Who a text means; nobody, or the end of an id, where `row` is None."""

    row: MemberRow | None
    card: CardOf | None = None


async def answer(parts: Parts, call: GroupCall, post: Deliver) -> Reply:
    """The reply to a call. Raises: GliaError."""
    table = parts.groups
    match call:
        case JoinGroup():
            return GroupsReply(call.id, group_values(table, await _join(parts, call.source)))
        case Grant():
            work = partial(_grant, table, call, _whom(call.who, parts.peering))
            return await trio.to_thread.run_sync(work)
        case Revoke():
            row = await trio.to_thread.run_sync(_revoke, table, call)
            return GroupsReply(call.id, group_values(table, [row]))
        case Card():
            return CardReply(call.id, as_text(CARD_TEXT, table.card()))
        case LeaveGroup():

            def tell(what: str, done: int, total: int) -> None:
                post(Progress(call.id, what, done, total))

            gone = await parts.leaving.leave(table.named(call.group).group_id, tell)
            return LeftReply(call.id, gone.num_windows, gone.freed_bytes)
        case _:
            rows = await trio.to_thread.run_sync(_rows, table, call)
            return GroupsReply(call.id, group_values(table, rows))


def _rows(table: Table, call: Groups | ShowGroup | CreateGroup | RotateGroup) -> list[GroupRow]:
    match call:
        case Groups():
            return table.all()
        case ShowGroup():
            return [table.named(call.group)]
        case CreateGroup():
            return [table.create(_name(call.name))]
        case RotateGroup():
            return [table.change(table.named(call.group).group_id, changes.rotated)]


def _name(text: str) -> str:
    if not text.isprintable() or text.strip() != text or len(text.encode()) > MAX_NAME_BYTES:
        raise BadRequest(f"a group cannot be called {text!r}", hint="gliad group create friends")
    return text


# -- joining ---------------------------------------------------------------------------------


async def _join(parts: Parts, source: str) -> Sequence[GroupRow]:
    words = source.strip()
    if words.startswith(GRANT_TEXT):
        return [await trio.to_thread.run_sync(_taken, parts.groups, words)]
    if words.startswith(CARD_TEXT):
        raise BadRequest("that is a card, which is for who grants", hint="gliad grant CARD")
    if is_peer_address(words):
        return await parts.group_life.join([words])
    if parts.peering is None:
        raise NotPermitted("a node without a network asks nobody", hint="gliad group join GRANT")
    return await parts.group_life.join_peer(named_peer(parts.peering, words))


def _taken(table: Table, text: str) -> GroupRow:
    try:
        return table.take(of_text(GRANT_TEXT, text))
    except MalformedParticle as error:
        raise BadRequest(
            f"this grant cannot be taken: {error.message}",
            hint="gliad group card, for whoever grants: each grant is for one node",
        ) from error


# -- granting --------------------------------------------------------------------------------


def _grant(table: Table, call: Grant, whom: _Whom) -> GrantReply:
    row = table.named(call.group)
    if whom.row is None:
        raise BadRequest(
            f"{call.who[:80]!r} is nobody that something can be granted",
            hint="a neuron's id, a peer's id, or a card, as `group card` prints it on that node",
        )
    now_s = int(time.time())
    wanted = structs.replace(
        whom.row,
        ops=call.ops,
        granted_s=now_s,
        model_id=call.model_id,
        until_s=None if call.expires_s is None else now_s + call.expires_s,
        bytes_per_hour=call.bytes_per_hour,
    )
    row = table.grant(row.group_id, wanted)
    text = ""
    if whom.card is not None:  # it may never be able to ask: what it gets now lasts longer
        grant = table.grant_for(row.group_id, whom.card, MAX_LIFE_S)
        text, row = as_text(GRANT_TEXT, grant), table.row(row.group_id)
    granted = next(each for each in row.members if changes.is_same(each, wanted))
    return GrantReply(call.id, member_value(granted), text)


def _revoke(table: Table, call: Revoke) -> GroupRow:
    row = table.named(call.group)
    changes.issuer_of(row)
    if _TOKEN.fullmatch(call.who):
        token_id = bytes.fromhex(call.who)
        return table.change(
            row.group_id, lambda row, now_s: changes.revoked_token(row, token_id, now_s)
        )
    gone = _members(row, call.who)
    return table.change(row.group_id, lambda row, now_s: changes.revoked(row, gone, now_s))


def _members(row: GroupRow, who: str) -> list[MemberRow]:
    """Whom a text means. Raises: NotFound, BadRequest."""
    meant = _whom(who).row
    found = [
        each
        for each in row.members
        if (_is_named(each, who) if meant is None else changes.is_same(each, meant))
    ]
    if not found and meant is not None and meant.peer is not None:
        return [meant]  # whom a delegate granted something
    if not found:
        raise NotFound(
            f"{who[:80]!r} is no member of group {row.name}",
            hint=f"gliad group show {shlex.quote(row.name)}",
        )
    if len(found) > 1:
        raise BadRequest(
            f"{who!r} does not say who", hint=f"gliad group show {shlex.quote(row.name)} --json"
        )
    return found


def _is_named(member: MemberRow, who: str) -> bool:
    """By how a neuron's id begins, or a peer's ends."""
    neuron = "" if member.neuron is None else member.neuron.hex()
    is_meant = neuron.startswith(who.lower()) or peer_text(member.peer).endswith(who)
    return len(who) >= _SHORTEST and is_meant


def _whom(who: str, peering: Peering | None = None) -> _Whom:
    """Args: peering: knows peers, that are named by how their ids end.

    Raises: BadRequest (a card that is none, an ambiguous end), NotFound.
    """
    if who.startswith(CARD_TEXT):
        try:
            card = parse_card(of_text(CARD_TEXT, who))
        except MalformedParticle as error:
            raise BadRequest(error.message, hint="`group card` prints one, on that node") from error
        return _Whom(MemberRow(ops=1, granted_s=0, neuron=card.neuron, peer=card.peer), card)
    if _NEURON.fullmatch(who):
        return _Whom(MemberRow(ops=1, granted_s=0, neuron=bytes.fromhex(who)))
    key = key_of(PeerId(who))
    if key is None and peering is not None:
        key = key_of(named_peer(peering, who))
    return _Whom(None if key is None else MemberRow(ops=1, granted_s=0, peer=key))
