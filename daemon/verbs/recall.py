"""recall: a conversation's past as its blocks have it: read back, and searched.

What is shown comes from the window records that the conversation's tip commits to, and from
nowhere else. Its log only says how much there should be.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.verbs.text import model_of, tokenizer_of
from glia.client import Client
from glia.errors import (
    BadRequest,
    GliaError,
    IntegrityError,
    NotFound,
    NotRunning,
    ProtocolError,
    UnknownConversation,
)
from glia.local.values import ConversationValue, ModelValue, WindowValue
from glia.model.remembered import Hit, Remembered
from glia.model.tokenizer import Tokenizer

TokenizerOf = Callable[[ModelValue], Tokenizer | None]


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    recall = verbs.add_parser(
        "recall",
        parents=[common],
        help="read back, or search, what the blocks of a conversation say",
        description="The text of the stored windows, from the first to the conversation's tip, "
        "with the template's marks. gliad export reads the log instead, which has the rest.",
    )
    recall.add_argument("name", metavar="NAME", nargs="?")
    recall.add_argument("--all", action="store_true", help="in all conversations; with --search")
    recall.add_argument("--search", metavar="TEXT", help="where this stands, in whatever case")
    recall.add_argument(
        "--from", dest="first", type=int, default=0, metavar="TOKEN", help="default: 0"
    )
    recall.add_argument(
        "--to", dest="behind", type=int, metavar="TOKEN", help="up to, not with, this one"
    )
    recall.add_argument("--json", action="store_true")
    recall.set_defaults(verb=_recall)


@dataclass(frozen=True)
class Past:
    """What of a conversation is in stored windows.

    Attributes:
        windows: from the first on, without a hole.
    """

    about: ConversationValue
    windows: list[WindowValue]
    tokens: list[int]
    tokenizer: Tokenizer | None
    block_size: int


def _recall(args: argparse.Namespace) -> int:
    _check_given(args)
    with Client.connect(args.data_dir) as client:
        models = client.models()
        if args.all:
            return _search_all(client, args, models)
        past = read_past(client, args.name, models, tokenizer_of)
    text = _remembered(args, past)
    hits = list(text.find(args.search)) if args.search is not None else None
    if args.json:
        show.as_json(_as_dict(args, past, text.text, hits))
        return 0
    _tell_missing(past, args.data_dir)
    if hits is None:
        show.line(text.text)
    else:
        _show_hits(args, [(args.name, hit) for hit in hits])
    return 0


def _check_given(args: argparse.Namespace) -> None:
    if (args.name is None) is not args.all:
        raise BadRequest("one NAME, or --all", hint="gliad conversations lists the names")
    if args.all and args.search is None:
        raise BadRequest("--all is for searching", hint="add --search TEXT")
    if args.search == "":
        raise BadRequest("there is nothing to search for", hint="give --search a text")
    if args.first < 0 or (args.behind is not None and args.behind < args.first):
        raise BadRequest("no such tokens", hint="0 <= --from <= --to")


def read_past(
    client: Client, name: str, models: list[ModelValue], tokenizer_of: TokenizerOf
) -> Past:
    """The stored windows of a conversation. Raises: UnknownConversation, IntegrityError."""
    found = client.conversation(name)
    about = found.about
    model = model_of(models, about.model_id)
    windows = _chain(client, about.tip)
    if not windows and model and len(found.tokens) >= model.block_size:
        # Leaves are evicted before roots: ask how far the conversation is still known.
        known = client.explain(model.name, found.tokens, dtype=about.dtype)
        windows = _chain(client, known.tip)
    tokens = [token for window in windows for token in window.tokens]
    if tuple(tokens) != found.tokens[: len(tokens)]:
        raise IntegrityError(
            f"the windows of {name} have other tokens than its log", hint="gliad check"
        )
    if model is None:
        return Past(about, windows, tokens, None, 0)
    return Past(about, windows, tokens, tokenizer_of(model), model.block_size)


def _chain(client: Client, tip: bytes | None) -> list[WindowValue]:
    if tip is None:
        return []
    try:
        return client.chain(tip)
    except NotFound:
        return []


def _remembered(args: argparse.Namespace, past: Past) -> Remembered:
    if past.tokenizer is None:
        raise BadRequest(
            f"the tokenizer of {past.about.model} is not known here any more",
            hint="gliad models shows those that are",
        )
    return Remembered(past.tokenizer, past.tokens[args.first : args.behind], args.first)


def _search_all(client: Client, args: argparse.Namespace, models: list[ModelValue]) -> int:
    """One that fails is told and left out; the exit code is then that of the first error."""
    found: list[tuple[str, Hit]] = []
    code = 0
    progress = show.ProgressLine()
    load = cache(tokenizer_of)  # of one model once: all conversations may be of it
    known = client.conversations()
    for number, about in enumerate(known):
        progress("searching", number, len(known))
        try:
            past = read_past(client, about.name, models, load)
            found += [(about.name, hit) for hit in _remembered(args, past).find(args.search)]
        except (NotRunning, ProtocolError):  # the others would fail, too
            raise
        except UnknownConversation:  # forgotten since it was listed
            continue
        except GliaError as error:
            progress.clear()
            show.note(f"{about.name} is left out: {error.message}")
            code = code or error.exit_code
    progress.clear()
    if args.json:
        show.as_json([{"name": name, **_hit(hit)} for name, hit in found])
    else:
        _show_hits(args, found)
    return code


def _show_hits(args: argparse.Namespace, found: list[tuple[str, Hit]]) -> None:
    if not found:
        said = "no stored window has it; gliad export has what is in none"
        show.note(addressed(said, args.data_dir))
        return
    rows = [
        (name, f"{hit.token:,}", _one_line(f"{hit.before}{hit.match}{hit.after}"))
        for name, hit in found
    ]
    first = 0 if args.all else 1
    show.table(("NAME", "TOKEN", "TEXT")[first:], [row[first:] for row in rows])


def _tell_missing(past: Past, data_dir: Path) -> None:
    missing = past.about.num_tokens - len(past.tokens)
    if 0 < missing < past.block_size:
        said = f"the last {missing:,} tokens are no whole window yet: gliad export has them"
        show.aside(addressed(said, data_dir))
    elif missing:
        said = (
            f"the last {missing:,} of {past.about.num_tokens:,} tokens are not stored any more; "
            f"the log has their text: gliad export {past.about.name}"
        )
        show.note(addressed(said, data_dir))


def _as_dict(
    args: argparse.Namespace, past: Past, text: str, hits: list[Hit] | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": past.about.name,
        "model": past.about.model,
        "num_tokens": past.about.num_tokens,
        "num_recalled": len(past.tokens),
        "windows": [window.window for window in past.windows],
    }
    if hits is not None:
        return {**found, "hits": [_hit(hit) for hit in hits]}
    return {**found, "text": text, "tokens": past.tokens[args.first : args.behind]}


def _hit(hit: Hit) -> dict[str, Any]:
    return {"token": hit.token, "before": hit.before, "match": hit.match, "after": hit.after}


def _one_line(text: str) -> str:
    return repr(text)[1:-1]
