"""run: continue a prompt; the answer streams to stdout, or comes as one JSON object."""

from __future__ import annotations

import argparse
from typing import Any

from daemon import show
from daemon.verbs.answering import (
    TAINTED,
    Stopping,
    add_options,
    as_dict,
    check_options,
    stream_answer,
    usage_line,
)
from daemon.verbs.dialogue import open_dialogue
from daemon.verbs.explaining import explanation, explanation_lines, fetched_lines
from daemon.verbs.labels import (
    add_labels,
    check_labels,
    settle_labels,
    tell_stays_private,
)
from daemon.verbs.prompt import Prompt, read_prompt
from daemon.verbs.text import find_model
from glia.client import Client
from glia.errors import Cancelled
from glia.local.messages import Generated


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    run = verbs.add_parser("run", parents=[common], help="continue a prompt")
    run.add_argument("model", metavar="MODEL")
    run.add_argument("prompt", metavar="PROMPT", nargs="?", help="text; - or none reads stdin")
    run.add_argument("--file", metavar="FILE", help="the prompt's text; - reads stdin")
    run.add_argument("--token-ids", metavar="FILE", help="the prompt as a JSON list of token ids")
    run.add_argument("--raw", action="store_true", help="no chat template")
    run.add_argument("--system", metavar="TEXT", help="a system message, with the chat template")
    run.add_argument(
        "--conversation", metavar="NAME", help="go on with this one; made where there is none"
    )
    add_labels(run)
    add_options(run)
    run.add_argument("--ignore-eos", action="store_true", help="go on to --max-tokens")
    run.add_argument(
        "--explain", action="store_true", help="say why so much is cached, and no more"
    )
    run.add_argument("--json", action="store_true", help="one JSON object when it is done")
    run.set_defaults(verb=_run)


def _run(args: argparse.Namespace) -> int:
    check_options(args)
    check_labels(args)
    with Client.connect(args.data_dir) as client:
        model = find_model(client.models(), args.model)
        dialogue = open_dialogue(client, model, args.conversation)
        tell_stays_private(args, dialogue)
        settle_labels(args, client)
        prompt = read_prompt(args, dialogue)
        explained = _explain(client, args, prompt) if args.explain else None
        done = _answer(client, args, prompt)
    if done.warning:
        show.note(f"warning: {done.warning}")
    if done.is_tainted:
        show.note(TAINTED)
    if args.json:
        found = as_dict(done, args.stop, prompt.tokenizer)
        if explained is not None:
            found["explain"] = {**explained, "fetched": done.fetched}
        show.as_json(found)
    else:
        for line in fetched_lines(done.fetched, done.usage.computed) if args.explain else ():
            show.note(line)
        if args.explain:
            show.note(f"numerics class: {done.numerics_class}")
        show.note(usage_line(done))
    if done.finish_reason == "cancelled":
        raise Cancelled("the request was cancelled")
    return 0


def _answer(client: Client, args: argparse.Namespace, prompt: Prompt) -> Generated:
    """Raises: KeyboardInterrupt where it was stopped; what there was of it is kept."""
    with Stopping() as stopping:
        try:
            done = stream_answer(client, args, prompt, stopping, args.seed)
        except Cancelled as error:
            if stopping.asked:
                raise KeyboardInterrupt from error
            raise
    if stopping.asked and done.finish_reason == "cancelled":
        raise KeyboardInterrupt
    return done


def _explain(client: Client, args: argparse.Namespace, prompt: Prompt) -> dict[str, Any]:
    how = {"dtype": args.dtype, "exact": args.exact, "turn": prompt.turn}
    reply = client.explain(args.model, prompt.tokens, **how)
    if not args.json:
        for line in explanation_lines(reply, prompt.tokens, prompt.tokenizer):
            show.note(line)
    return explanation(reply, prompt.tokens, prompt.tokenizer)
