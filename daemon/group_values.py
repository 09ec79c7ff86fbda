"""Groups and their members as the local API shows them. No secret is among it."""

from __future__ import annotations

from collections.abc import Sequence

from daemon import group_changes as changes
from daemon.group_file import GroupRow, MemberRow
from daemon.groups import Groups
from glia.graph.capability import parse_chain
from glia.graph.claims import PeerKey
from glia.graph.scope import Op
from glia.local.group_values import GroupValue, MemberValue
from p2p.peer_key import peer_of


def group_values(table: Groups, rows: Sequence[GroupRow]) -> list[GroupValue]:
    """As groups are shown; of one, with its members."""
    members = rows[0].members if len(rows) == 1 else ()
    return [_value(row, members, table.trouble(row.group_id)) for row in rows]


def _value(row: GroupRow, members: Sequence[MemberRow], trouble: str) -> GroupValue:
    said = changes.list_of(row)
    newest = row.epochs[-1] if row.epochs else None
    scope = None if row.is_issuer else parse_chain(row.chain).scope
    everything = Op.FETCH | Op.ANNOUNCE | Op.DELEGATE
    return GroupValue(
        group=row.group_id,
        name=row.name,
        role=_role(row),
        epoch=0 if newest is None else newest.number,
        epochs=len(row.epochs),
        epoch_s=0 if newest is None else newest.began_s,
        ops=_words(everything if scope is None else scope.ops),
        expires_s=None if scope is None else scope.expires_s,
        list_s=said.time_s,
        num_revoked=len(said.holders) + len(said.tokens),
        homes=list(row.homes),
        num_members=len(row.members),
        members=[member_value(each) for each in members],
        trouble=trouble,
    )


def _role(row: GroupRow) -> str:
    if row.is_issuer:
        return "issuer"
    return "relay" if row.is_relay else "member"


def member_value(row: MemberRow) -> MemberValue:
    """As whom this node granted something is shown."""
    return MemberValue(
        ops=_words(Op(row.ops)),
        granted_s=row.granted_s,
        neuron="" if row.neuron is None else row.neuron.hex(),
        peer=peer_text(row.peer),
        model_id="" if row.model_id is None else row.model_id.hex(),
        until_s=row.until_s,
        bytes_per_hour=row.bytes_per_hour,
    )


def _words(ops: Op) -> list[str]:
    return [str(op.name).lower() for op in Op if op in ops]


def peer_text(key: bytes | None) -> str:
    """A peer's id, "" of none."""
    return "" if key is None else peer_of(PeerKey(key))
