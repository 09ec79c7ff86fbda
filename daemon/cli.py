"""`gliad`: one verb a call. It has no way into a node but glia.client."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from daemon import show
from daemon.paths import default_data_dir
from daemon.streams import open_closed
from daemon.verbs import (
    audit,
    chat,
    checkpoint,
    completion,
    config,
    conversations,
    doctor,
    fetch,
    forget,
    grants,
    groups,
    links,
    models,
    node,
    peers,
    ps,
    publish,
    recall,
    run,
    soul,
    store,
    trace,
    unit,
    verify,
    where,
)
from daemon.verbs.arguments import absolute, nameable
from glia.errors import BadRequest, GliaError

_GROUPS = (
    node, config, doctor, unit, models, run, chat, conversations, forget, publish, recall, ps,
    peers, where, links, audit, fetch, trace, verify, groups, grants, soul, checkpoint, store,
)  # fmt: skip

Verb = Callable[[argparse.Namespace], int]

_DESCRIPTION = "A daemon that gives every block of an LLM's K/V cache a name."
_EPILOG = """environment:
  GLIA_DATA_DIR    stands for --data-dir
  GLIA_MODELS_DIR  where models (NAME.model) are looked for

Data goes to stdout, everything else to stderr. An error's last line says what to type."""

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0, or the error class's (glia/errors.py)."""
    open_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a letter shows "?"
    try:
        return _run(_parsed(argv))
    except KeyboardInterrupt:
        show.note("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        show.discard_output()  # whoever read it has enough
        return 0


def _run(args: argparse.Namespace) -> int:
    verb: Verb = args.verb
    try:
        args.data_dir = nameable(args.data_dir or default_data_dir(os.environ))
        code = verb(args)
        show.flush()
    except GliaError as problem:
        show.error(problem, args.data_dir)
        return problem.exit_code
    return code


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """As _parse, with what --help or --version said written. Raises: SystemExit."""
    try:
        return _parse(argv)
    except SystemExit:
        try:
            show.flush()
        except BadRequest as problem:
            show.error(problem)
            sys.exit(problem.exit_code)
        raise


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The verb and its arguments.

    Before Python 3.12.7 argparse takes an optional PROMPT to be absent as soon as an option
    follows MODEL, and calls the real one unrecognized (CPython issue 59317).
    """
    args, rest = _parser().parse_known_args(argv)
    if getattr(args, "prompt", "") is None and _begins_with_text(rest):
        rest = rest[1:] if rest[0] == "--" else rest
        args.prompt = rest.pop(0)
    if rest:
        shown = f"unrecognized arguments: {' '.join(rest)}"
        show.error(BadRequest(shown, hint=f"{args.prog} --help"))
        sys.exit(BadRequest.exit_code)
    return args


def _begins_with_text(words: Sequence[str]) -> bool:
    """Whether the first of them is no option; what stands after -- is none."""
    if words[:1] == ["--"]:
        return len(words) > 1
    return bool(words) and (words[0] == "-" or not words[0].startswith("-"))


class _Parser(argparse.ArgumentParser):
    """Tells a mistake as every other error is told. `prog` is in what it parses."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.set_defaults(prog=self.prog)

    def error(self, message: str) -> NoReturn:
        show.error(BadRequest(message, hint=f"{self.prog} --help"))
        sys.exit(BadRequest.exit_code)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gliad",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=node.version_line())
    common = _Parser(add_help=False)
    common.add_argument(
        "--data-dir",
        type=absolute,
        metavar="DIR",
        help="where the node lives (default: $GLIA_DATA_DIR, else ~/.local/share/glia)",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for group in _GROUPS:
        group.add_verbs(verbs, common)
    completion.add_verbs(verbs, common, parser)
    return parser
