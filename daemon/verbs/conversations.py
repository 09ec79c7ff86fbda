"""conversations, fork, export: what was said on this node, and going back in it."""

from __future__ import annotations

import argparse
import time
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.verbs.text import model_of, tokenizer_of
from glia.client import Client
from glia.client.conversations import Conversation
from glia.errors import BadRequest
from glia.local.values import ConversationValue
from glia.model.tokenizer import Tokenizer
from glia.model.turns import is_untold, message_text

_NUM_ANONYMOUS = 20  # that are listed unless all are asked for


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    listing = verbs.add_parser(
        "conversations", parents=[common], help="list conversations, last used first"
    )
    listing.add_argument(
        "--all", action="store_true", help=f"more than the last {_NUM_ANONYMOUS} anonymous ones"
    )
    listing.add_argument("--json", action="store_true", help="all of them, as JSON")
    listing.set_defaults(verb=_list)

    fork = verbs.add_parser(
        "fork",
        parents=[common],
        help="begin a conversation with another's tokens",
        description="The new conversation has NAME's messages, or its first TOKEN tokens; "
        "NAME stays as it is. gliad export NAME --json shows where messages begin and end.",
    )
    fork.add_argument("source", metavar="NAME[@TOKEN]")
    fork.add_argument("new", metavar="NEW")
    fork.add_argument("--json", action="store_true")
    fork.set_defaults(verb=_fork)

    export = verbs.add_parser("export", parents=[common], help="a conversation's text, to stdout")
    export.add_argument("name", metavar="NAME")
    form = export.add_mutually_exclusive_group()
    form.add_argument(
        "--raw", action="store_true", help="as the model reads it, with the template's marks"
    )
    form.add_argument("--json", action="store_true", help="with token ids and where messages are")
    export.set_defaults(verb=_export)


def _list(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        found = client.conversations()
    if args.json:
        show.as_json(found)
        return 0
    anonymous = [about for about in found if about.anonymous]
    left_out = set() if args.all else {about.name for about in anonymous[_NUM_ANONYMOUS:]}
    now_s = time.time()
    show.table(
        ("NAME", "MODEL", "MESSAGES", "TOKENS", "LABEL", "USED", "EXPIRES"),
        [_row(about, now_s) for about in found if about.name not in left_out],
    )
    if left_out:
        said = f"{len(left_out):,} more anonymous ones: gliad conversations --all"
        show.note(addressed(said, args.data_dir))
    return 0


def _row(about: ConversationValue, now_s: float) -> tuple[str, ...]:
    used = "now" if about.running else f"{show.span(now_s - about.used_s)} ago"
    expires = "never" if about.expires_s is None else f"in {show.span(about.expires_s - now_s)}"
    counts = (f"{about.num_messages:,}", f"{about.num_tokens:,}")
    label = f"{about.visibility}, tainted" if about.num_tainted else about.visibility
    if about.moved_to:
        used = f"moved to Body {about.moved_to[:12]}"
    return (about.name, about.model, *counts, label, used, expires)


def _fork(args: argparse.Namespace) -> int:
    name, num_tokens = split_position(args.source)
    with Client.connect(args.data_dir) as client:
        about = client.fork(name, args.new, num_tokens)
        made = client.conversation(args.new)
    if args.json:
        show.as_json(about)
    else:
        begin = f"{about.name} begins with the first {about.num_tokens:,} tokens of {name}"
        show.note(addressed(f"{begin}; go on: {_going_on(made)}", args.data_dir))
    return 0


def _going_on(made: Conversation) -> str:
    model, name = made.about.model, made.about.name
    if _has_roles(made) or not made.tokens:
        return f"gliad chat {model} --conversation {name}"
    return f"gliad run {model} TEXT --raw --conversation {name}"


def split_position(text: str) -> tuple[str, int | None]:
    """NAME@TOKEN in two; an anonymous name begins with @ itself. Raises: BadRequest."""
    name, _, position = text.rpartition("@")
    if not name:
        return text, None
    if not (position.isascii() and position.isdecimal() and len(position) < 16):
        raise BadRequest(f"no token's number: {position!r}", hint="write it like story@120")
    return name, int(position)


def _export(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        found = client.conversation(args.name)
        model = model_of(client.models(), found.about.model_id)
    tokenizer = tokenizer_of(model) if model else None
    if args.json:
        show.as_json(as_dict(found, tokenizer))
        return 0
    if tokenizer is None:
        raise BadRequest(
            f"the tokenizer of {found.about.model} is not known here any more",
            hint=f"gliad export {args.name} --json has the token ids",
        )
    if args.raw or not _has_roles(found):
        show.line(tokenizer.decode(found.tokens, skip_special=not args.raw))
    else:
        texts = (message_text(tokenizer, found.tokens, said) for said in found.messages)
        pairs = zip(found.messages, texts, strict=True)
        show.line("\n\n".join(f"{said.role}:\n{text}" for said, text in pairs))
    _tell_tainted(found, args)
    return 0


def _tell_tainted(found: Conversation, args: argparse.Namespace) -> None:
    if found.about.num_tainted:
        said = (
            f"{found.about.num_tainted:,} answers used K/V of peers that does not hold, as was "
            f"found since: gliad trust shows whose; ask again for an answer of this node's own"
        )
        show.note(addressed(said, args.data_dir))


def _has_roles(found: Conversation) -> bool:
    """Whether a chat template made it."""
    return any(said.role for said in found.messages[:1]) and not is_untold(found.messages)


def as_dict(found: Conversation, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """A conversation for --json: a message's content is its text, whoever said it."""
    about = {name: getattr(found.about, name) for name in found.about.__struct_fields__}
    messages = [
        {
            "role": said.role,
            "content": message_text(tokenizer, found.tokens, said) if tokenizer else said.content,
            "start": said.start,
            "end": said.end,
            "visibility": said.visibility,
            "is_tainted": said.is_tainted,
        }
        for said in found.messages
    ]
    return {**about, "messages": messages, "tokens": found.tokens}
