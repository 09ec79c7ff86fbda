"""run: continue a prompt; the answer streams to stdout, or comes as one JSON object."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from daemon import show
from daemon.verbs.prompt import Prompt, read_prompt
from daemon.verbs.text import find_model
from glia.client import Client
from glia.errors import BadRequest, Cancelled
from glia.graph.manifest import DTYPES
from glia.local.messages import Emitted, Generated, Progress
from glia.local.values import SamplingValue, UsageValue
from glia.model.answer import AnswerStream, answer_text
from glia.model.tokenizer import Tokenizer


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    run = verbs.add_parser("run", parents=[common], help="continue a prompt")
    run.add_argument("model", metavar="MODEL")
    run.add_argument("prompt", metavar="PROMPT", nargs="?", help="text; - or none reads stdin")
    run.add_argument("--file", metavar="FILE", help="the prompt's text; - reads stdin")
    run.add_argument("--token-ids", metavar="FILE", help="the prompt as a JSON list of token ids")
    run.add_argument("--raw", action="store_true", help="no chat template")
    run.add_argument("--system", metavar="TEXT", help="a system message, with the chat template")
    run.add_argument("--max-tokens", type=int, default=256, metavar="N", help="default: 256")
    run.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="default: 0, greedy"
    )
    run.add_argument("--top-p", type=float, default=1.0, metavar="P", help="default: 1, all")
    run.add_argument("--top-k", type=int, default=0, metavar="K", help="default: 0, all")
    run.add_argument("--seed", type=int, default=0, metavar="N", help="makes sampling repeatable")
    run.add_argument("--stop", action="append", default=[], metavar="TEXT", help="may be repeated")
    run.add_argument("--dtype", choices=DTYPES, help="instead of the model's")
    run.add_argument("--ignore-eos", action="store_true", help="go on to --max-tokens")
    run.add_argument("--json", action="store_true", help="one JSON object when it is done")
    run.set_defaults(verb=_run)


def _run(args: argparse.Namespace) -> int:
    sampling = _sampling(args)
    with Client.connect(args.data_dir) as client:
        prompt = read_prompt(args, find_model(client.models(), args.model))
        done = _generate(client, args, prompt, sampling)
    tokenizer = prompt.tokenizer
    text = answer_text(done.tokens, args.stop, tokenizer) if tokenizer else None
    if done.warning:
        show.note(f"warning: {done.warning}")
    if args.json:
        show.as_json(_as_dict(done, text))
    else:
        show.note(usage_line(done.usage, done.ttft_ms))
    if done.finish_reason == "cancelled":
        raise Cancelled("the request was cancelled")
    return 0


def _sampling(args: argparse.Namespace) -> SamplingValue:
    in_range = {
        "--max-tokens": 1 <= args.max_tokens <= 2**20,
        "--temperature": 0 <= args.temperature <= 100,
        "--top-p": 0 < args.top_p <= 1,
        "--top-k": 0 <= args.top_k <= 2**20,
        "--seed": 0 <= args.seed < 2**63,
        "--stop": len(args.stop) <= 16 and all(1 <= len(s) <= 256 for s in args.stop),
    }
    for option, good in in_range.items():
        if not good:
            raise BadRequest(f"{option} is out of range", hint="gliad run --help")
    return SamplingValue(args.temperature, args.top_p, args.top_k, args.seed)


def _generate(
    client: Client, args: argparse.Namespace, prompt: Prompt, sampling: SamplingValue
) -> Generated:
    progress = show.ProgressLine()
    printer = _Printer(None if args.json else prompt.tokenizer, args.stop)
    events = client.generate(
        args.model,
        prompt.tokens,
        max_tokens=args.max_tokens,
        dtype=args.dtype,
        sampling=sampling,
        stop_tokens=() if args.ignore_eos else prompt.stop_tokens,
        stop=args.stop,
        ignore_eos=args.ignore_eos,
    )
    with closing(events), printer:  # type: ignore[type-var]  # a generator: closing cancels
        for event in events:
            if isinstance(event, Progress):
                progress(event.what, event.done, event.total)
                continue
            progress.clear()
            if isinstance(event, Generated):
                printer.finish()
                return event
            printer.push(event)
    raise Cancelled("gliad ended the request without an answer")


class _Printer:
    """Text to stdout as it comes.

    As a context it ends a line that an error breaks off, so that the error has its own.
    """

    def __init__(self, tokenizer: Tokenizer | None, stop: Sequence[str]) -> None:
        self._stream = AnswerStream(tokenizer, stop) if tokenizer else None
        self._in_line = False

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_error: object) -> None:
        if self._in_line:
            self._give("\n")

    def push(self, event: Emitted) -> None:
        if self._stream is not None:
            self._give(self._stream.push(event.tokens))

    def finish(self) -> None:
        if self._stream is not None:
            self._give(self._stream.finish() + "\n")

    def _give(self, text: str) -> None:
        if text:
            self._in_line = not text.endswith("\n")
            show.piece(text)


def usage_line(usage: UsageValue, ttft_ms: float) -> str:
    """4,096 of 4,097 prompt tokens cached (l1), first token 0.11 s."""
    tiers = {name: getattr(usage.cached, name) for name in ("l0", "l1", "l2", "peers")}
    used = [name for name, tokens in tiers.items() if tokens]
    where = ", ".join(used if len(used) < 2 else [f"{name} {tiers[name]:,}" for name in used])
    cached = f"{sum(tiers.values()):,} of {usage.prompt_tokens:,} prompt tokens cached"
    return f"{cached}{f' ({where})' if where else ''}, first token {ttft_ms / 1000:.2f} s"


def _as_dict(done: Generated, text: str | None) -> dict[str, Any]:
    return {
        "text": text,
        "token_ids": done.tokens,
        "tip": done.tip,
        "finish_reason": done.finish_reason,
        "usage": done.usage,
        "ttft_ms": done.ttft_ms,
        "timings_ms": done.timings_ms,
        "warning": done.warning,
    }
