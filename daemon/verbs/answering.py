"""What run and chat share: the options of an answer, streaming it, and what it cost."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from contextlib import closing
from types import FrameType
from typing import Any

from daemon import show
from daemon.verbs.prompt import Prompt
from glia.client import Client
from glia.errors import BadRequest, Cancelled
from glia.graph.manifest import CANONICAL_DTYPE, NATIVE_DTYPES
from glia.graph.numerics import CANONICAL
from glia.local.messages import Emitted, Generated, Progress
from glia.local.values import SamplingValue
from glia.model.answer import AnswerStream, answer_text
from glia.model.tokenizer import Tokenizer

TAINTED = (
    "what peers sent for this answer turned out not to hold, while it was made: ask again, and it "
    "is computed here; gliad trust shows whose it was"
)


def add_options(verb: argparse.ArgumentParser) -> None:
    """Declare the options of an answer."""
    verb.add_argument("--max-tokens", type=int, default=256, metavar="N", help="default: 256")
    verb.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="default: 0, greedy"
    )
    verb.add_argument("--top-p", type=float, default=1.0, metavar="P", help="default: 1, all")
    verb.add_argument("--top-k", type=int, default=0, metavar="K", help="default: 0, all")
    verb.add_argument("--seed", type=int, default=0, metavar="N", help="makes sampling repeatable")
    verb.add_argument("--stop", action="append", default=[], metavar="TEXT", help="may be repeated")
    verb.add_argument(
        "--exact",
        action="store_const",
        const=True,
        help="use no K/V that another processor or torch computed",
    )
    dtype = verb.add_mutually_exclusive_group()
    dtype.add_argument("--dtype", choices=NATIVE_DTYPES, help="instead of the model's")
    dtype.add_argument(
        "--canonical",
        dest="dtype",
        action="store_const",
        const=CANONICAL_DTYPE,
        help="compute in float64: K and V of the same bytes on any machine, more slowly",
    )


def check_options(args: argparse.Namespace) -> None:
    """Raises: BadRequest for a number out of range."""
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
            raise BadRequest(f"{option} is out of range", hint=f"{args.prog} --help")


class Stopping:
    """While it is entered the first Ctrl-C asks for the end of an answer; a second ends us.

    Attributes:
        asked: whether there was one.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Stopping:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(self, *_error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def is_asked(self) -> bool:
        return self.asked

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def stream_answer(
    client: Client, args: argparse.Namespace, prompt: Prompt, stopping: Stopping, seed: int
) -> Generated:
    """Ask, and print the answer's text as it comes, unless it is to be JSON.

    Raises: GliaError; Cancelled where it was stopped before it began.
    """
    progress = show.ProgressLine()
    printer = _Printer(None if args.json else prompt.tokenizer, args.stop)
    events = client.generate(
        args.model,
        prompt.tokens,
        max_tokens=args.max_tokens,
        dtype=args.dtype,
        sampling=SamplingValue(args.temperature, args.top_p, args.top_k, seed),
        stop_tokens=() if args.ignore_eos else prompt.stop_tokens,
        stop=args.stop,
        ignore_eos=args.ignore_eos,
        turn=prompt.turn,
        exact=args.exact,
        is_cancelled=stopping.is_asked,
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


def usage_line(done: Generated) -> str:
    """4,096 of 4,097 prompt tokens cached (l1), first token 0.11 s, 41 tokens/s."""
    tiers = {name: getattr(done.usage.cached, name) for name in ("l0", "l1", "l2", "peers")}
    used = [name for name, tokens in tiers.items() if tokens]
    where = ", ".join(used if len(used) < 2 else [f"{name} {tiers[name]:,}" for name in used])
    cached = f"{sum(tiers.values()):,} of {done.usage.prompt_tokens:,} prompt tokens cached"
    decode_s = done.timings_ms.get("decode", 0.0) / 1000
    num_decoded = done.usage.completion_tokens - 1  # the first comes with the prompt
    speed = f", {num_decoded / decode_s:,.0f} tokens/s" if num_decoded > 0 and decode_s else ""
    exact = "" if done.exact else ", not exact: some K/V is of another numerics class"
    if done.numerics_class == CANONICAL:
        exact += ", canonical"
    tiers_used = f" ({where})" if where else ""
    return f"{cached}{tiers_used}, first token {done.ttft_ms / 1000:.2f} s{speed}{exact}"


def as_dict(done: Generated, stop: Sequence[str], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """The answer for --json."""
    return {
        "text": answer_text(done.tokens, stop, tokenizer) if tokenizer else None,
        "token_ids": done.tokens,
        "tip": done.tip,
        "conversation": done.conversation or None,
        "finish_reason": done.finish_reason,
        "exact": done.exact,
        "numerics_class": done.numerics_class,
        "usage": done.usage,
        "ttft_ms": done.ttft_ms,
        "timings_ms": done.timings_ms,
        "warning": done.warning,
        "is_tainted": done.is_tainted,
    }
