"""group: what only some may read, and who they are."""

from __future__ import annotations

import argparse
import shlex
import time
from typing import Any

from daemon import show
from daemon.verbs.arguments import absolute, group_name
from daemon.verbs.group_report import report_group
from daemon.verbs.handed import handed
from glia.client import Client
from glia.errors import BadRequest, NotPermitted
from glia.graph.grant import GRANT_TEXT
from glia.graph.ids import short
from glia.local.group_values import GroupValue, MemberValue

_ID_END = 10  # characters of a peer's id


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    group = verbs.add_parser(
        "group",
        parents=[common],
        help="list, make, show, join, leave groups; rotate their keys; this node's card",
        description="A group's windows are encrypted to its members, and their names are salted: "
        "who is none can read and guess nothing. Without a subcommand: list.",
    )
    group.add_argument("--json", action="store_true")
    group.set_defaults(verb=_list)
    _add_group_verbs(group.add_subparsers(metavar="create|list|show|join|card|rotate|leave"))


def _add_group_verbs(verbs: Any) -> None:
    words = {
        "list": (_list, "the groups that this node is in"),
        "create": (_create, "make a group; this node is its issuer"),
        "show": (_show, "a group, and whom this node granted something in it"),
        "join": (_join, "become a member, by a grant or by asking who granted it"),
        "card": (_card, "print what to hand to whoever is to grant this node something"),
        "rotate": (_rotate, "encrypt what is new with a new key from now on"),
        "leave": (_leave, "erase what is here of a group, and its secrets"),
    }
    for word, (verb, text) in words.items():
        parser = verbs.add_parser(word, help=text)
        if word == "join":
            parser.add_argument(
                "source", metavar="GRANT|FILE|-|PEER", help="or a peer's multiaddr, or its id's end"
            )
        elif word not in ("list", "card"):
            parser.add_argument("group", type=group_name, metavar="NAME")
        if word == "leave":
            parser.add_argument(
                "--for-good",
                action="store_true",
                help="also a group that was made here: nothing can be granted in it any more",
            )
        # What stands behind must not lose what `group` parsed.
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
        parser.add_argument("--data-dir", type=absolute, metavar="DIR", default=argparse.SUPPRESS)
        parser.set_defaults(verb=verb)


# -- group -----------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        groups = client.groups()
    if args.json:
        show.as_json(groups)
        return 0
    show.table(
        ("GROUP", "ID", "ROLE", "EPOCH", "MEMBERS", "MAY", "UNTIL"), [_row(each) for each in groups]
    )
    return 0


def _row(group: GroupValue) -> tuple[str, ...]:
    return (
        group.name,
        short(group.group),
        group.role,
        str(group.epoch or ""),
        str(group.num_members) if group.role == "issuer" else "",
        ",".join(group.ops),
        "" if group.expires_s is None else _until(group.expires_s),
    )


def _create(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        group = client.create_group(args.group)
    return report_group(
        args,
        group,
        f"group {group.name} is made: gliad grant WHO --group {shlex.quote(args.group)}",
    )


def _show(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        group = client.group(args.group)
    if args.json:
        show.as_json(group)
        return 0
    now_s = time.time()
    show.line(f"group    {group.name}")
    show.line(f"id       {group.group.hex()}")
    show.line(f"role     {group.role}")
    if group.epoch:
        show.line(
            f"epoch    {group.epoch}, from {_ago(now_s - group.epoch_s)}; {group.epochs} known"
        )
    show.line(f"may      {', '.join(group.ops)}")
    if group.expires_s is not None:
        show.line(f"until    {_until(group.expires_s)}")
    show.line(f"revoked  {group.num_revoked}, as of {_ago(now_s - group.list_s)}")
    if group.trouble:
        show.line(f"trouble  {group.trouble}")
    for home in group.homes:
        show.line(f"home     {home}")
    if group.members:
        head = ("NEURON", "PEER", "MAY", "MODEL", "GRANTED", "UNTIL")
        show.table(head, [_member_row(each, now_s) for each in group.members])
    return 0


def _member_row(member: MemberValue, now_s: float) -> tuple[str, ...]:
    return (
        member.neuron[:12] or "unknown",
        f"…{member.peer[-_ID_END:]}" if member.peer else "unknown",
        ",".join(member.ops),
        member.model_id[:12] or "any",
        _ago(now_s - member.granted_s),
        "it is revoked" if member.until_s is None else _until(member.until_s),
    )


def _join(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        joined = client.join_group(handed(args.source, GRANT_TEXT))
    if not joined:
        raise NotPermitted(
            "that node grants this one nothing",
            hint="gliad group card, and there: gliad grant CARD --group G",
        )
    if args.json:
        show.as_json(joined)
        return 0
    for group in joined:
        show.note(f"this node is in group {group.name}, and may {', '.join(group.ops)} there")
    return 0


def _card(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        card = client.card()
    if args.json:
        show.as_json({"card": card})
    else:
        show.line(card)
    return 0


def _rotate(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        group = client.rotate_group(args.group)
    return report_group(args, group, f"group {group.name} is in epoch {group.epoch}")


def _leave(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        if client.group(args.group).role == "issuer" and not args.for_good:
            raise BadRequest(
                f"group {args.group} was made here, and its key is nowhere else: nobody could be "
                "granted anything in it, renewed or revoked any more",
                hint=f"gliad group leave {shlex.quote(args.group)} --for-good",
            )
        progress = show.ProgressLine()
        reply = client.leave_group(args.group, progress)
        progress.clear()
    if args.json:
        show.as_json({"num_windows": reply.num_windows, "freed_bytes": reply.freed_bytes})
        return 0
    erased = f"{reply.num_windows:,} windows ({show.size(reply.freed_bytes)}) and its secrets"
    show.note(f"group {args.group} is left: {erased} are gone; conversations keep what was said")
    return 0


def _ago(seconds: float) -> str:
    return f"{show.span(max(0.0, seconds))} ago"


def _until(time_s: float) -> str:
    left_s = time_s - time.time()
    return f"in {show.span(left_s)}" if left_s > 0 else "over"
