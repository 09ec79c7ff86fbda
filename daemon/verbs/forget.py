"""forget: a conversation, and every byte that nothing else uses, is gone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from daemon import show
from daemon.commands import addressed
from glia.client import Client
from glia.errors import BadRequest, StoreBroken, UnknownConversation
from glia.local.messages import ForgetReply
from glia.local.values import ConversationValue


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    forget = verbs.add_parser(
        "forget",
        parents=[common],
        help="remove conversations, and every byte that nothing else uses",
        description="Text, tokens and K/V are removed from memory and from the data dir's files; "
        "what other conversations use stays, and what was announced to peers, but for --withdraw. "
        "What an SSD keeps of old blocks is beyond us.",
    )
    forget.add_argument("names", metavar="NAME", nargs="*")
    forget.add_argument("--anonymous", action="store_true", help="all that have no name")
    forget.add_argument(
        "--withdraw", action="store_true", help="show peers no longer what they were told of"
    )
    forget.add_argument("--yes", action="store_true", help="do not ask")
    forget.add_argument("--json", action="store_true")
    forget.set_defaults(verb=_forget)


def _forget(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        chosen = _chosen(args, client)
        if chosen and not args.yes and not _agreed(chosen):
            show.note("nothing was forgotten")
            return 0
        replies = [(name, _forget_one(client, args, name)) for name in chosen]
    if args.json:
        show.as_json([_as_dict(name, reply) for name, reply in replies])
    elif not replies:
        show.note("there is nothing to forget")
    return 0


def _chosen(args: argparse.Namespace, client: Client) -> dict[str, str]:
    """Names, and what is to be said of each. Raises: BadRequest, UnknownConversation,
    ConversationBusy."""
    if not args.names and not args.anonymous:
        raise BadRequest("forget what?", hint="gliad conversations lists their names")
    chosen = {
        about.name: _size(about)
        for about in client.conversations()
        if about.name in args.names or (about.anonymous and args.anonymous)
    }
    for name in args.names:
        if name not in chosen:
            chosen[name] = _unlisted(client, name)
    return chosen


def _unlisted(client: Client, name: str) -> str:
    """What is to be said of one that has come meanwhile, or was set aside as damaged.

    Raises: UnknownConversation, ConversationBusy.
    """
    try:
        return _size(client.conversation(name).about)
    except StoreBroken as error:
        return error.message
    except UnknownConversation as error:
        raise UnknownConversation(
            f"there is no conversation {name!r}; nothing was forgotten", hint=error.hint
        ) from error


def _size(about: ConversationValue) -> str:
    return f"{about.num_messages:,} messages, {about.num_tokens:,} tokens"


def _agreed(chosen: Mapping[str, str]) -> bool:
    """Ask. Raises: BadRequest where nobody can be asked."""
    if not sys.stdin.isatty():
        raise BadRequest("forgetting is for good, and nobody is here to ask", hint="add --yes")
    for name in list(chosen)[:10]:
        show.note(f"{name}: {chosen[name]}")
    if len(chosen) > 10:
        show.note(f"and {len(chosen) - 10:,} more")
    sys.stderr.write("forget for good? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _forget_one(client: Client, args: argparse.Namespace, name: str) -> ForgetReply:
    if args.withdraw:
        client.withdraw(name)
    progress = show.ProgressLine()
    reply = client.forget(name, progress)
    progress.clear()
    if not args.json:
        shared = f"; {reply.num_shared:,} windows stay, others use them" if reply.num_shared else ""
        if reply.num_published:
            shared += f"; {reply.num_published:,} windows stay, they are published for good"
        freed = f"{show.size(reply.freed_bytes)} in {reply.num_windows:,} windows removed"
        show.line(f"{name}: {freed}{shared}")
        if reply.was_damaged:
            left = f"{name} was damaged, and windows of it may be left: gliad gc --unreferenced"
            show.note(addressed(left, args.data_dir))
    return reply


def _as_dict(name: str, reply: ForgetReply) -> dict[str, Any]:
    return {
        "name": name,
        "num_windows": reply.num_windows,
        "freed_bytes": reply.freed_bytes,
        "num_shared": reply.num_shared,
        "num_published": reply.num_published,
        "was_damaged": reply.was_damaged,
    }
