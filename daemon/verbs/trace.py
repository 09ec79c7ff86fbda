"""trace: what a conversation says, for others to run again."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from daemon import show
from daemon.verbs.arguments import absolute
from glia.client import Client
from glia.errors import BadRequest
from glia.graph.trace import Answer, SignedTrace


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verbs."""
    trace = verbs.add_parser(
        "trace",
        parents=[common],
        help="what a conversation says, signed, for others to run again: to stdout",
        description="The conversation's tokens, how its answers were chosen, the model_id and the "
        "ids of its windows, signed by this node's neuron. Whoever has it reads the conversation: "
        "it is not encrypted. Whoever has the model, too, can run it again: gliad verify.",
    )
    trace.add_argument("conversation", metavar="CONVERSATION")
    trace.add_argument(
        "--out", type=absolute, metavar="FILE", help="write it there; only you can read it"
    )
    trace.add_argument("--json", action="store_true", help="in words, not to be verified")
    trace.set_defaults(verb=_trace)


def _trace(args: argparse.Namespace) -> int:
    if not args.json and args.out is None and sys.stdout.isatty():
        raise BadRequest(
            "a trace is no text", hint=f"gliad trace {args.conversation} > {args.conversation}.glia"
        )
    with Client.connect(args.data_dir) as client:
        signed = client.trace(args.conversation)
    if args.out is not None:
        _write(args.out, signed.encoding)
    if args.json:
        show.as_json(_as_dict(signed))
    elif args.out is None:
        show.data(signed.encoding)
    if not signed.trace.windows and len(signed.trace.tokens) >= signed.trace.block_size:
        show.note(
            "none of its windows is named, being a group's or not stored here any more: "
            "the trace says its tokens only"
        )
    return 0


def _write(path: Path, data: bytes) -> None:
    """A file that is new is for its owner only: it says the conversation. Raises: BadRequest."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint="give --out another file") from error


def _as_dict(signed: SignedTrace) -> dict[str, Any]:
    trace = signed.trace
    return {
        "model": trace.model,
        "model_id": trace.model_id,
        "profile_id": trace.profile_id,
        "dtype": trace.dtype,
        "block_size": trace.block_size,
        "time_s": trace.time_us / 1_000_000,
        "tokens": trace.tokens,
        "answers": [_answer(answer) for answer in trace.answers],
        "windows": trace.windows,
        "classes": [
            {"numerics_class": run.numerics_class, "num_windows": run.num_windows}
            for run in trace.runs
        ],
        "neuron": signed.signer,
        "signature": signed.signature,
        "proof": None,
    }


def _answer(answer: Answer) -> dict[str, Any]:
    how = answer.sampling
    said = None
    if how is not None:
        names = ("temperature", "top_p", "top_k", "seed")
        said = {name: getattr(how, name) for name in names}
    return {"start": answer.start, "end": answer.end, "sampling": said}
