"""chain, check, evict, gc: what is stored, whether it is sound, giving memory and disk back."""

from __future__ import annotations

import argparse
from typing import Any

from daemon import show
from daemon.verbs.text import model_of, tokenizer_of, window_texts
from glia.client import Client
from glia.errors import IntegrityError, NotFound
from glia.graph.ids import parse_start, short
from glia.local.values import WindowValue
from glia.model.tokenizer import Tokenizer

_SHOWN_CHARS = 60


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    chain = verbs.add_parser("chain", parents=[common], help="the windows from genesis to TIP")
    chain.add_argument("tip", metavar="TIP", help="a window's id, or its first digits")
    chain.add_argument("--json", action="store_true")
    chain.set_defaults(verb=_chain)

    check = verbs.add_parser("check", parents=[common], help="re-verify everything stored")
    check.add_argument("--json", action="store_true")
    check.set_defaults(verb=_check)

    evict = verbs.add_parser("evict", parents=[common], help="give a tier's memory back")
    evict.add_argument("--tier", choices=("l0", "l1"), required=True)
    evict.add_argument("--json", action="store_true")
    evict.set_defaults(verb=_evict)

    gc = verbs.add_parser(
        "gc",
        parents=[common],
        help="forget what has expired, drop what no prompt can reach, compact",
        description="Anonymous conversations past their time are forgotten, windows behind a "
        "hole in their chain are dropped, and the index is compacted.",
    )
    gc.add_argument(
        "--unreferenced", action="store_true", help="also drop what no conversation uses"
    )
    gc.add_argument("--json", action="store_true")
    gc.set_defaults(verb=_gc)


def _chain(args: argparse.Namespace) -> int:
    tip = parse_start(args.tip)
    with Client.connect(args.data_dir) as client:
        windows = client.chain(tip)
        tokenizer = _tokenizer(client, windows)
    texts = window_texts([window.tokens for window in windows], tokenizer)
    if args.json:
        show.as_json([_as_dict(*pair) for pair in zip(windows, texts, strict=True)])
        return 0
    show.table(
        ("WINDOW", "POSITION", "BLOCKS", "TEXT"),
        [
            (short(w.window), f"{w.position_start:,}", str(len(w.blocks)), _one_line(text))
            for w, text in zip(windows, texts, strict=True)
        ],
    )
    return 0


def _tokenizer(client: Client, windows: list[WindowValue]) -> Tokenizer | None:
    if not windows:
        raise NotFound("the chain is empty")
    model = model_of(client.models(), windows[0].model_id)
    return tokenizer_of(model) if model else None


def _as_dict(window: WindowValue, text: str | None) -> dict[str, Any]:
    return {
        "window": window.window,
        "position_start": window.position_start,
        "tokens": window.tokens,
        "text": text,
        "blocks": window.blocks,
        "model_id": window.model_id,
        "numerics_class": window.numerics_class,
    }


def _one_line(text: str | None) -> str:
    if text is None:
        return "no tokenizer here"
    shown = repr(text)[1:-1]
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 1] + "…"


def _check(args: argparse.Namespace) -> int:
    progress = show.ProgressLine()
    with Client.connect(args.data_dir) as client:
        reply = client.check(progress)
    progress.clear()
    found = {
        "checked": reply.checked,
        "bad": reply.bad,
        "windows": reply.windows,
        "bad_windows": reply.bad_windows,
        "l1_checked": reply.l1_checked,
        "l1_bad": reply.l1_bad,
    }
    if args.json:
        show.as_json(found)
    else:
        show.table(
            [name.upper().replace("_", " ") for name in found],
            [[f"{number:,}" for number in found.values()]],
        )
    if reply.bad or reply.bad_windows or reply.l1_bad:
        show.note("what is bad is set aside and computed again when a prompt needs it")
        return IntegrityError.exit_code
    return 0


def _evict(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        reply = client.evict(args.tier)
    if args.json:
        freed = {"freed_bytes": reply.freed_bytes, "freed_windows": reply.freed_windows}
        show.as_json({"tier": args.tier, **freed})
    else:
        freed_size = show.size(reply.freed_bytes)
        show.line(f"{args.tier}: {freed_size} in {reply.freed_windows:,} windows given back")
    return 0


def _gc(args: argparse.Namespace) -> int:
    progress = show.ProgressLine()
    with Client.connect(args.data_dir) as client:
        reply = client.gc(unreferenced=args.unreferenced, on_progress=progress)
    progress.clear()
    if args.json:
        show.as_json(
            {
                "conversations": reply.num_conversations,
                "windows": reply.num_windows,
                "freed_bytes": reply.freed_bytes,
            }
        )
    else:
        show.line(
            f"{reply.num_conversations:,} conversations forgotten, {reply.num_windows:,} windows "
            f"dropped, {show.size(reply.freed_bytes)} given back"
        )
    return 0
