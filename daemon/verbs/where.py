"""where: who has how much of a prompt; peers are asked, and nothing is fetched."""

from __future__ import annotations

import argparse
from typing import Any

from daemon import show
from daemon.verbs.dialogue import Dialogue
from daemon.verbs.prompt import read_prompt
from daemon.verbs.text import find_model
from glia.client import Client
from glia.graph.manifest import DTYPES
from glia.graph.privacy import Visibility

_HEAD = ("PEER", "TOKENS", "SIGNED BY")


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    where = verbs.add_parser(
        "where",
        parents=[common],
        help="who has how much of a prompt: asks peers",
        description="Asks all peers that are known who has how much of a prompt, and fetches "
        "nothing. They learn the names of its leading windows: whoever has the same text knows "
        "what was asked about.",
    )
    where.add_argument("model", metavar="MODEL")
    where.add_argument("prompt", metavar="PROMPT", nargs="?", help="text; - or none reads stdin")
    where.add_argument("--file", metavar="FILE", help="the prompt's text; - reads stdin")
    where.add_argument("--token-ids", metavar="FILE", help="a JSON list of token ids")
    where.add_argument("--raw", action="store_true", help="no chat template")
    where.add_argument("--system", metavar="TEXT", help="a system message, with the chat template")
    where.add_argument("--dtype", choices=DTYPES, help="instead of the model's")
    where.add_argument("--json", action="store_true")
    where.set_defaults(verb=_where, visibility=Visibility.PRIVATE.word, system_visibility=None)


def _where(args: argparse.Namespace) -> int:
    with Client.connect(args.data_dir) as client:
        model = find_model(client.models(), args.model)
        tokens = read_prompt(args, Dialogue(model, "")).tokens
        known = client.explain(args.model, tokens, dtype=args.dtype)
        found = client.where(args.model, tokens, args.dtype)
    if args.json:
        show.as_json(
            {
                "prompt_tokens": len(tokens),
                "here": known.num_matched,
                "asked": found.num_asked,
                "answered": found.num_answered,
                "holders": found.holders,
            }
        )
        return 0
    show.note(
        f"{known.num_matched:,} of {len(tokens):,} prompt tokens are here; "
        f"{found.num_answered:,} of {found.num_asked:,} peers answered"
    )
    if found.holders:
        rows = [
            (each.peer, f"{each.num_tokens:,}", ", ".join(s[:12] for s in each.signers) or "nobody")
            for each in found.holders
        ]
        show.table(_HEAD, rows)
    return 0
