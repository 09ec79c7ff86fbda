"""publish: a conversation, or its beginning, is shown to peers, whatever its labels say; or is
shown no longer."""

from __future__ import annotations

import argparse
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.verbs.text import model_of, tokenizer_of
from glia.client import Client
from glia.client.conversations import Conversation
from glia.errors import BadRequest
from glia.graph.privacy import Visibility, parse_label
from glia.local.messages import PublishReply
from glia.model.tokenizer import Tokenizer
from glia.model.turns import message_text

_TEXT_LETTERS = 60


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    publish = verbs.add_parser(
        "publish",
        parents=[common],
        help="show peers what a conversation said so far",
        description="Show peers a conversation as it is now, or its beginning: full windows only. "
        "Its labels stay, so nothing of what follows is shown. Who asks is answered at once; "
        "others are told of it after network.announce_hold_s. --withdraw ends it all: it is "
        "shown no longer, to groups neither, and private from then on. What peers took by then "
        "stays with them.",
    )
    publish.add_argument("conversation", metavar="CONVERSATION")
    publish.add_argument("--up-to", type=int, metavar="TOKEN", help="so many tokens; default: all")
    publish.add_argument("--dry-run", action="store_true", help="only list what would be shown")
    publish.add_argument(
        "--canonical",
        action="store_true",
        help="compute it anew in float64 and show that: the same bytes on any machine",
    )
    publish.add_argument(
        "--withdraw", action="store_true", help="show it no longer, and label all of it private"
    )
    publish.add_argument("--json", action="store_true")
    publish.set_defaults(verb=_publish)


def _publish(args: argparse.Namespace) -> int:
    name, up_to = args.conversation, args.up_to
    if args.withdraw:
        return _withdraw(args)
    if up_to is not None and up_to < 0:
        raise BadRequest("--up-to is out of range", hint=f"{args.prog} --help")
    with Client.connect(args.data_dir) as client:
        found = client.conversation(name)
        model = model_of(client.models(), found.about.model_id)
        progress = show.ProgressLine()
        now = client.publish(
            name, up_to, dry=args.dry_run, canonical=args.canonical, on_progress=progress
        )
        progress.clear()
    tokenizer = tokenizer_of(model) if model else None
    if args.json:
        show.as_json(_as_dict(found, now, tokenizer, dry=args.dry_run))
        return 0
    show.table(("ROLE", "LABEL", "TOKENS", "SHOWN", "TEXT"), _rows(found, now, tokenizer))
    if args.canonical:
        show.note(_cost(now, dry=args.dry_run))
    show.note(addressed(_summary(found, now, dry=args.dry_run), args.data_dir))
    return 0


def _withdraw(args: argparse.Namespace) -> int:
    name = args.conversation
    if args.up_to is not None or args.dry_run or args.canonical:
        raise BadRequest("--withdraw is of all of it, and at once", hint=f"{args.prog} --help")
    with Client.connect(args.data_dir) as client:
        gone = client.withdraw(name)
    if args.json:
        show.as_json(
            {
                "conversation": name,
                "num_windows": gone.num_windows,
                "num_continued": gone.num_continued,
            }
        )
        return 0
    said = f"{name} is private: {gone.num_windows:,} windows are shown no longer"
    if gone.num_continued:
        said += f"; {gone.num_continued:,} stay, others that are shown continue them"
    show.note(f"{said}. What peers took by now stays with them")
    return 0


def _cost(now: PublishReply, *, dry: bool) -> str:
    if not dry:
        return (
            f"{now.num_computed:,} tokens computed in float64, in {show.span(now.compute_s or 0)}"
        )
    if not now.num_computed:
        return "all of it was computed in float64 before"
    took = f"some {show.span(now.compute_s)}" if now.compute_s else "how long is not known yet"
    return f"{now.num_computed:,} tokens would be computed in float64: {took}"


def _summary(found: Conversation, now: PublishReply, *, dry: bool) -> str:
    num_whole = now.num_tokens // now.block_size if now.block_size else 0
    said = f"{now.num_windows:,} full windows, {now.num_new:,} of them not shown before"
    if now.num_windows < num_whole:
        said += f"; {num_whole - now.num_windows:,} more are not stored here any more"
    if any(_is_groups(each.visibility) for each in found.messages):
        said += "; what is a group's, its members alone are shown, without this"
    if dry:
        return f"{said}. Nothing was published: this is a dry run"
    if not now.num_new:
        return said
    take_back = f"gliad publish {found.about.name} --withdraw"
    if now.hold_s is None:
        return f"{said}. Only who asks is told: {take_back} ends that"
    return f"{said}. Others are told in {now.hold_s:.0f} s: {take_back} takes it back"


def _is_groups(label: str) -> bool:
    parsed = parse_label(label)
    return parsed is not None and parsed[0] is Visibility.AGGREGATE


def _num_shown(now: PublishReply) -> int:
    return now.num_windows * now.block_size


def _rows(
    found: Conversation, now: PublishReply, tokenizer: Tokenizer | None
) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for each in _messages(found, now, tokenizer):
        text = " ".join((each["content"] or "").split())
        shown = text if len(text) <= _TEXT_LETTERS else f"{text[: _TEXT_LETTERS - 1]}…"
        span = f"{each['start']:,} to {each['end']:,}"
        rows.append(
            (each["role"] or "text", each["visibility"], span, f"{each['num_shown']:,}", shown)
        )
    return rows


def _messages(
    found: Conversation, now: PublishReply, tokenizer: Tokenizer | None
) -> list[dict[str, Any]]:
    """Each message, and how many of its tokens peers can see."""
    return [
        {
            "role": said.role,
            "content": message_text(tokenizer, found.tokens, said) if tokenizer else said.content,
            "visibility": said.visibility,
            "start": said.start,
            "end": said.end,
            "num_shown": max(0, min(said.end, _num_shown(now)) - said.start),
        }
        for said in found.messages
    ]


def _as_dict(
    found: Conversation, now: PublishReply, tokenizer: Tokenizer | None, *, dry: bool
) -> dict[str, Any]:
    return {
        "conversation": found.about.name,
        "dry_run": dry,
        "num_tokens": now.num_tokens,
        "block_size": now.block_size,
        "num_windows": now.num_windows,
        "num_new": now.num_new,
        "hold_s": now.hold_s,
        "num_computed": now.num_computed,
        "compute_s": now.compute_s,
        "messages": _messages(found, now, tokenizer),
    }
