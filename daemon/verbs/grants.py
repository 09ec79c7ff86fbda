"""grant, revoke: who may do what in a group."""

from __future__ import annotations

import argparse
from typing import Any

from daemon import show
from daemon.verbs.arguments import duration, group_name, size
from daemon.verbs.group_report import report_group
from daemon.verbs.handed import handed
from daemon.verbs.text import model_id_of
from glia.client import Client
from glia.graph.grant import CARD_TEXT
from glia.graph.scope import Op


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    grant = verbs.add_parser(
        "grant",
        parents=[common],
        help="let a node read a group, and more",
        description="WHO is a neuron's id, a peer's id or how that ends, or a card (its text, a "
        "FILE with it, or - for stdin), which the other node's `gliad group card` prints. For a "
        "card the grant is printed, for its node's `gliad group join`; others ask for it.",
    )
    grant.add_argument("who", metavar="WHO")
    _add_group_flag(grant)
    grant.add_argument("--model", metavar="MODEL", help="of this model alone")
    grant.add_argument(
        "--ops",
        type=_ops,
        default=Op.FETCH,
        metavar="OPS",
        help="of fetch,announce,delegate (default fetch); or relay: to keep and serve what it "
        "cannot read",
    )
    grant.add_argument(
        "--expires", type=duration, metavar="1h", help="when it ends (default: when it is revoked)"
    )
    grant.add_argument(
        "--hourly", type=size, metavar="1GiB", help="what each node gives it an hour (default: all)"
    )
    grant.add_argument("--json", action="store_true")
    grant.set_defaults(verb=_grant)
    revoke = verbs.add_parser(
        "revoke",
        parents=[common],
        help="take back what was granted, and begin a new epoch",
        description="What WHO could read until now it can read still; nothing new. Nodes that "
        "are online know within a minute; others serve it until its capability expires, an hour "
        "at most, a day where the grant was handed over. WHO may be a token's id, too.",
    )
    revoke.add_argument("who", metavar="WHO", help="as grant has it, or how `group show` shows it")
    _add_group_flag(revoke)
    revoke.add_argument("--json", action="store_true")
    revoke.set_defaults(verb=_revoke)


def _add_group_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group",
        type=group_name,
        required=True,
        metavar="G",
        help="its name here, or how its id begins",
    )


def _ops(text: str) -> Op:
    ops = Op(0)
    for word in text.split(","):
        if word.upper() not in Op.__members__:
            raise argparse.ArgumentTypeError(f"not of fetch, announce, delegate, relay: {word!r}")
        ops |= Op[word.upper()]
    return ops | Op.FETCH if Op.RELAY in ops else ops


def _grant(args: argparse.Namespace) -> int:
    who = handed(args.who, CARD_TEXT)
    with Client.connect(args.data_dir) as client:
        model_id = model_id_of(client.models(), args.model) if args.model is not None else None
        reply = client.grant(
            args.group,
            who,
            args.ops,
            model_id=model_id,
            expires_s=args.expires,
            bytes_per_hour=args.hourly,
        )
    if args.json:
        show.as_json({"member": reply.member, "grant": reply.grant or None})
        return 0
    if reply.grant:
        show.line(reply.grant)
        show.note("to be handed over: gliad group join GRANT, there")
    else:
        hint = "it asks for it, once it was told where: gliad group join ADDRESS, there"
        show.note(f"granted {', '.join(reply.member.ops)}; {hint}; gliad id shows this node's")
    return 0


def _revoke(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        group = client.revoke(args.group, handed(args.who, CARD_TEXT))
    return report_group(args, group, f"revoked; group {group.name} is in epoch {group.epoch}")
