"""What a group's members are given: decisions, without files or network.

The issuer signs capabilities; a member that may delegate hands on what it has, in the name of
its node's key, and no more than that.
"""

from __future__ import annotations

import secrets
import shlex

from msgspec import structs

from daemon.group_changes import MAX_KEPT_EPOCHS, issuer_of, list_of
from daemon.group_file import EpochRow, GroupRow, MemberRow
from glia.errors import BadRequest, NotPermitted
from glia.graph.capability import Chain, attenuate, grant, parse_chain
from glia.graph.claims import MAX_LIFE_S, TOKEN_ID_BYTES, PeerKey
from glia.graph.grant import Given
from glia.graph.group import Epoch
from glia.graph.ids import ModelId, short
from glia.graph.member import Keys
from glia.graph.neuron import Signer
from glia.graph.scope import Op, Scope

LIFE_S = 3600  # of a capability that is renewed over the network


def issued(
    row: GroupRow, member: MemberRow, holder: PeerKey, peer: Signer | None, now_s: int, life_s: int
) -> Chain:
    """A capability for a member's node.

    Args:
        peer: this node's key, which delegates where this node is not the issuer.
        life_s: how long it is good at most.
    Raises: NotPermitted (more than this node may grant).
    """
    scope = scope_of(row, member, now_s, life_s)
    token_id = secrets.token_bytes(TOKEN_ID_BYTES)
    if row.is_issuer:
        return grant(issuer_of(row), holder, scope, now_s, token_id)
    if peer is None:
        raise NotPermitted("a node without a network hands on nothing", hint="gliad start")
    try:
        return attenuate(parse_chain(row.chain), peer, holder, scope, now_s, token_id)
    except ValueError as error:
        raise NotPermitted(f"this node may not grant that: {error}") from error


def given_to(row: GroupRow, chain: Chain, homes: tuple[str, ...], now_s: int) -> Given:
    """A grant's content. Raises: NotPermitted (an epoch's statement has not come here yet)."""
    keys = None if Op.RELAY in chain.scope.ops else row.keys
    if keys is not None and not all(keys.statements):
        raise NotPermitted(
            f"group {row.name} was joined with an older gliad, and must be renewed first",
            hint=f"gliad group join {next(iter(row.homes), 'GRANT')}",
        )
    return Given(row.name, now_s, chain, keys, list_of(row), row.revoked, homes)


def scope_of(row: GroupRow, member: MemberRow, now_s: int, life_s: int) -> Scope:
    """What a member may have now. Raises: NotPermitted (more than this node may hand on)."""
    if row.is_relay:
        raise NotPermitted(
            f"this node relays group {row.name}, and grants nothing in it",
            hint=f"gliad group show {shlex.quote(row.name)} says where it was granted: ask there",
        )
    end_s = now_s + min(life_s, MAX_LIFE_S)
    begin_s, epoch = now_s, row.epochs[-1].number
    if member.until_s is not None:
        end_s = min(end_s, member.until_s)
    had = None if row.is_issuer else parse_chain(row.chain).scope
    if had is not None:
        begin_s, end_s = max(begin_s, had.not_before_s), min(end_s, had.expires_s)
        epoch = min(epoch, had.epoch)
    if end_s <= begin_s:
        raise NotPermitted(
            "what was granted is over", hint=f"gliad group show {shlex.quote(row.name)}"
        )
    scope = Scope(
        group=row.group_id,
        audience=row.group_id if had is None else had.audience,
        ops=Op(member.ops),
        epoch=epoch,
        not_before_s=begin_s,
        expires_s=end_s,
        model_id=None if member.model_id is None else ModelId(member.model_id),
        roots=None if had is None else had.roots,
        bytes_per_hour=_least(member.bytes_per_hour, None if had is None else had.bytes_per_hour),
    )
    if had is not None and not (Op.DELEGATE in had.ops and scope.is_within(had)):
        raise NotPermitted(
            f"this node may not grant that in group {row.name}",
            hint=f"gliad group show {shlex.quote(row.name)}",
        )
    return scope


def _least(one: int | None, other: int | None) -> int | None:
    """Of two limits the lower one; None is none."""
    return min((each for each in (one, other) if each is not None), default=None)


def joined(row: GroupRow | None, given: Given, now_s: int) -> GroupRow:
    """A group as a grant says it is; what this node grants others in it stays.

    Raises: BadRequest (the grant is older than what is known, or of who may grant no more).
    """
    issuer = given.chain.tokens[0].claims.issuer
    fresh = GroupRow(
        name=given.name,
        issuer=issuer,
        secret=None if given.keys is None else given.keys.secret,
        epochs=() if given.keys is None else _rows(given.keys, now_s),
        revoked=given.revoked_encoding,
        chain=given.chain.encoding,
        homes=given.homes,
        given_s=given.time_s,
    )
    last = given.revoked if row is None or given.revoked.follows(list_of(row)) else list_of(row)
    if any(last.names(token.claims) for token in given.chain.tokens):
        raise BadRequest(
            f"a grant of group {given.name} that was revoked", hint="ask whoever made the group"
        )
    if row is None:
        return fresh
    _check(row, given, now_s)
    known = {each.number: each for each in (*fresh.epochs, *_stated(row))}
    epochs = tuple(known[number] for number in sorted(known))[-MAX_KEPT_EPOCHS:]
    revoked = fresh.revoked if last is given.revoked else row.revoked
    return structs.replace(
        fresh, name=row.name, epochs=epochs, revoked=revoked, members=row.members
    )


def _rows(keys: Keys, now_s: int) -> tuple[EpochRow, ...]:
    pairs = zip(keys.epochs, keys.statements, strict=True)
    return tuple(EpochRow(each.number, each.key, now_s, said) for each, said in pairs)


def _stated(row: GroupRow) -> list[EpochRow]:
    """What its issuer signed: what an older gliad took from whoever granted counts no more."""
    return [each for each in row.epochs if each.statement]


def _check(row: GroupRow, given: Given, now_s: int) -> None:
    """Raises: BadRequest."""
    if row.is_issuer:
        raise BadRequest(f"this node made group {row.name}, and needs no grant")
    if given.keys is None:
        if not row.is_relay:
            raise BadRequest(
                f"this node has keys of group {row.name}, and cannot relay it without",
                hint=f"gliad group leave {shlex.quote(row.name)}, then join again",
            )
        _check_time(row, given, now_s)
        return
    known = {each.number: each.key for each in _stated(row)}
    twice = [each for each in given.keys.epochs if known.get(each.number, each.key) != each.key]
    if twice:
        kept = Epoch(twice[0].number, known[twice[0].number])
        raise BadRequest(
            f"the issuer of group {row.name} signed two keys for epoch {kept.number}: this node "
            f"keeps {short(kept.epoch_id)}, and takes no grant with {short(twice[0].epoch_id)}",
            hint="ask whoever made the group: its node may have been put back to an older state",
        )
    if given.keys.secret != row.secret and known:
        raise BadRequest(f"the issuer of group {row.name} signed two secrets of it")
    _check_time(row, given, now_s)


def _check_time(row: GroupRow, given: Given, now_s: int) -> None:
    """Raises: BadRequest."""
    had = parse_chain(row.chain).scope
    if given.time_s < row.given_s and had.not_before_s <= now_s < had.expires_s:
        raise BadRequest(f"a grant of group {row.name} that is older than the last one")
