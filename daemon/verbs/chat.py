"""chat: a conversation, line by line; what was said is kept and can be gone on with."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from daemon import show
from daemon.commands import addressed
from daemon.verbs.answering import (
    TAINTED,
    Stopping,
    add_options,
    as_dict,
    check_options,
    stream_answer,
    usage_line,
)
from daemon.verbs.dialogue import Dialogue, open_dialogue
from daemon.verbs.labels import (
    add_labels,
    check_labels,
    labelled,
    settle_labels,
    tell_stays_private,
)
from daemon.verbs.prompt import make_prompt, read_line, read_text
from daemon.verbs.terminal import read_message, show_earlier
from daemon.verbs.text import find_model, need_tokenizer
from glia.client import Client
from glia.errors import BadRequest, Cancelled, GliaError
from glia.local.messages import Generated
from glia.model.turns import NextPrompt

_SHOWN_MESSAGES = 2
_HELP = """/help   this
/again  another answer to the last message (with --temperature above 0 a different one)
/exit   leave; Ctrl-D does, too

Ctrl-C stops an answer; what there is of it stays. A line that ends in \\ goes on in the next."""


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    chat = verbs.add_parser(
        "chat",
        parents=[common],
        help="talk with a model",
        description="Talk with a model. Without a terminal each line of stdin is a message, "
        "and the answers go to stdout.",
    )
    chat.add_argument("model", metavar="MODEL")
    chat.add_argument(
        "--conversation", metavar="NAME", help="go on with this one; made where there is none"
    )
    chat.add_argument("--system", metavar="FILE", help="the text of a system message")
    add_labels(chat)
    add_options(chat)
    chat.add_argument("--json", action="store_true", help="a line of JSON for each answer")
    chat.set_defaults(verb=_chat, ignore_eos=False)


def _chat(args: argparse.Namespace) -> int:
    check_options(args)
    check_labels(args)
    with Client.connect(args.data_dir) as client:
        model = find_model(client.models(), args.model)
        dialogue = open_dialogue(client, model, args.conversation)
        tell_stays_private(args, dialogue)
        settle_labels(args, client)
    chat = _Chat(args, dialogue)
    if sys.stdin.isatty():
        chat.greet()
        _talk(chat)
    else:
        for line in _lines():
            chat.say(line)
    chat.part()
    return 0


def _talk(chat: _Chat) -> None:
    """Until whoever types leaves. Errors are told, and the talk goes on."""
    while (text := read_message()) is not None:
        word = text.strip()
        try:
            if word == "/exit":
                return
            if word == "/help":
                show.note(_HELP)
            elif word == "/again":
                chat.answer_again()
            elif text.startswith("/"):
                raise BadRequest(
                    f"there is no {word.split()[0]}",
                    hint="/help shows what there is; a message may begin with a space",
                )
            elif word:
                chat.say(text)
        except GliaError as error:
            show.error(error, chat.data_dir)
            chat.is_stale = True


def _lines() -> Iterator[str]:
    """The messages on stdin, where no terminal is, as they come. Raises: PromptError."""
    while line := read_line():
        if line.strip():
            yield line.removesuffix("\n")


class _Chat:
    """A dialogue with a model, and what the command line says about it.

    A connection is made for each answer: gliad may be started again in between.

    Attributes:
        data_dir: of the node that is talked with.
        is_stale: something went wrong; gliad knows better how the conversation is now.
    """

    def __init__(self, args: argparse.Namespace, dialogue: Dialogue) -> None:
        self._args = args
        self.data_dir: Path = args.data_dir
        self._dialogue = dialogue
        self._tokenizer = need_tokenizer(dialogue.model)
        self._num_again = 0
        self._system = None if args.system is None else read_text(args.system)
        self.is_stale = False
        dialogue.check_roles(self._tokenizer)
        dialogue.needs_system(self._tokenizer, self._system)

    def greet(self) -> None:
        """Say where we are."""
        dialogue = self._dialogue
        name = f" {dialogue.name}" if dialogue.name else ""
        if dialogue.is_empty:
            what = f"a new conversation{name}"
        else:
            counts = f"{len(dialogue.messages):,} messages, {len(dialogue.tokens):,} tokens"
            what = f"conversation{name}, {counts}"
        show.note(f"{dialogue.model.name}: {what}. /help says what can be typed.")
        show_earlier(dialogue.texts(self._tokenizer)[-_SHOWN_MESSAGES:])

    def say(self, text: str) -> None:
        """A message, and its answer. Raises: GliaError."""
        with Client.connect(self.data_dir) as client:
            self._refresh(client)
            needs_system = self._dialogue.needs_system(self._tokenizer, self._system)
            messages, labels = labelled(self._args, self._system if needs_system else None, text)
            placed = self._dialogue.with_messages(self._tokenizer, messages, labels)
            self._answer(client, placed)

    def answer_again(self) -> None:
        """Another answer instead of the last one. Raises: GliaError."""
        with Client.connect(self.data_dir) as client:
            self._refresh(client)
            prompt = self._dialogue.again()
            self._num_again += 1
            self._answer(client, prompt)

    def part(self) -> None:
        """Say how to go on."""
        name, model = self._dialogue.name, self._dialogue.model.name
        if not name or self._dialogue.is_empty or (self._args.json and not sys.stdin.isatty()):
            return
        show.aside(addressed(f"go on: gliad chat {model} --conversation {name}", self.data_dir))
        if name.startswith("@"):
            keep = f"keep it under a name: gliad fork {name} NAME"
            show.aside(addressed(keep, self.data_dir))

    def _refresh(self, client: Client) -> None:
        if self.is_stale and self._dialogue.name:
            self._dialogue = open_dialogue(client, self._dialogue.model, self._dialogue.name)
        self.is_stale = False

    def _answer(self, client: Client, placed: NextPrompt) -> None:
        prompt = make_prompt(self._dialogue, placed, self._tokenizer)
        seed = self._args.seed + self._num_again
        with Stopping() as stopping:
            try:
                done = stream_answer(client, self._args, prompt, stopping, seed)
            except Cancelled:
                if not stopping.asked:
                    raise
                done = None
        if done is not None:
            self._dialogue.take(placed, done)
            self._tell(done)
        elif sys.stdin.isatty():
            show.note("stopped before it began; the conversation is as it was")
        if stopping.asked and not sys.stdin.isatty():
            raise KeyboardInterrupt

    def _tell(self, done: Generated) -> None:
        if done.warning:
            show.note(f"warning: {done.warning}")
        if done.is_tainted:
            show.note(TAINTED)
        if self._args.json:
            show.json_line(as_dict(done, self._args.stop, self._tokenizer))
            return
        how = {"cancelled": "stopped; ", "length": "cut at --max-tokens; "}
        show.aside(f"{how.get(done.finish_reason, '')}{usage_line(done)}")
