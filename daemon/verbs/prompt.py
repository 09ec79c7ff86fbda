"""The prompt of `gliad run`: where its text comes from, and its tokens."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from daemon.verbs.dialogue import Dialogue
from daemon.verbs.labels import labelled
from daemon.verbs.text import files_dir, need_tokenizer, tokenizer_of
from glia.errors import BadRequest, PromptError
from glia.local.messages import MAX_FRAME_BYTES
from glia.local.values import TurnValue
from glia.model.tokenizer import Tokenizer, eos_ids
from glia.model.turns import NextPrompt

MAX_PROMPT_BYTES = 64 * 1024 * 1024
# msgpack writes a token in at most 5 bytes; the rest of the frame is for the other fields.
MAX_PROMPT_TOKENS = (MAX_FRAME_BYTES - 16 * 1024) // 5

_CONVERTING = {
    "standard input": "convert what is piped in: iconv -f LATIN1 -t UTF-8 FILE | gliad run MODEL -",
    "the prompt": "type it in a terminal of UTF-8, or give --file FILE",
}

_token_ids = msgspec.json.Decoder(list[int])


@dataclass(frozen=True)
class Prompt:
    """What to continue.

    Attributes:
        placed: the prompt, and what it says beyond the conversation that it goes on with.
        turn: what it is to that conversation.
        stop_tokens: the model's own ends of an answer.
        tokenizer: None where the model has none here; the answer is then tokens only.
    """

    placed: NextPrompt
    turn: TurnValue
    stop_tokens: tuple[int, ...]
    tokenizer: Tokenizer | None

    @property
    def tokens(self) -> list[int]:
        return self.placed.tokens


def read_prompt(args: argparse.Namespace, dialogue: Dialogue) -> Prompt:
    """The prompt that the arguments of `run` name.

    Raises: PromptError, BadRequest, BadModelFile.
    """
    _check_given(args)
    model = dialogue.model
    if args.token_ids is not None:
        placed = dialogue.with_tokens(_token_list(args.token_ids), args.visibility)
        return make_prompt(dialogue, placed, tokenizer_of(model))
    text = _text(args)
    if not text:
        raise PromptError("the prompt is empty", hint='gliad run MODEL "some text"')
    tokenizer = need_tokenizer(model)
    if args.raw:
        placed = dialogue.with_text(tokenizer, text, args.visibility)
        return make_prompt(dialogue, placed, tokenizer)
    system = args.system if dialogue.needs_system(tokenizer, args.system) else None
    placed = dialogue.with_messages(tokenizer, *labelled(args, system, text))
    return make_prompt(dialogue, placed, tokenizer)


def make_prompt(dialogue: Dialogue, placed: NextPrompt, tokenizer: Tokenizer | None) -> Prompt:
    """A prompt of a dialogue, if its model takes so much. Raises: PromptError, BadModelFile."""
    _check_length(placed, dialogue)
    found = files_dir(dialogue.model)
    return Prompt(placed, dialogue.turn(placed), eos_ids(found) if found else (), tokenizer)


def _check_length(placed: NextPrompt, dialogue: Dialogue) -> None:
    num_tokens, model = len(placed.tokens), dialogue.model
    if num_tokens == placed.keep and not dialogue.messages:
        raise PromptError("the prompt is empty", hint="give at least one token")
    limit = min(model.context_tokens or MAX_PROMPT_TOKENS, MAX_PROMPT_TOKENS)
    if num_tokens < limit:
        return
    if dialogue.is_empty:
        raise PromptError(
            f"the prompt has {num_tokens:,} tokens; {model.name} takes {limit - 1:,} at most",
            hint="shorten the prompt",
        )
    raise PromptError(
        f"with this the conversation has {num_tokens:,} tokens; "
        f"{model.name} takes {limit - 1:,} at most",
        hint=f"begin another, or go back to an earlier token: gliad fork {dialogue.name}@TOKEN NEW",
    )


def _check_given(args: argparse.Namespace) -> None:
    if sum(given is not None for given in (args.prompt, args.file, args.token_ids)) > 1:
        raise BadRequest(
            "the prompt is given twice", hint="give one of PROMPT, --file and --token-ids"
        )
    if args.system is not None and (args.raw or args.token_ids is not None):
        raise BadRequest(
            "--system is for the chat template, which is not used here",
            hint="leave out --system, or --raw and --token-ids",
        )


def _text(args: argparse.Namespace) -> str:
    if args.prompt is not None and args.prompt != "-":
        return _as_unicode(args.prompt.encode(errors="surrogateescape"), "the prompt")
    if args.file is None and args.prompt is None and sys.stdin.isatty():
        raise PromptError("there is no prompt", hint='gliad run MODEL "some text"')
    return read_text(args.file or "-")


def read_text(name: str) -> str:
    """The text of a file, or (-) of stdin. Raises: PromptError."""
    return _as_unicode(_read(name), "standard input" if name == "-" else name)


def read_line() -> str:
    """The next line of stdin with its end, "" behind the last. Raises: PromptError."""
    data = sys.stdin.buffer.readline(MAX_PROMPT_BYTES + 1)
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptError(f"a line larger than {MAX_PROMPT_BYTES:,} bytes", hint="shorten it")
    return _as_unicode(data, "standard input")


def _token_list(name: str) -> list[int]:
    try:
        tokens = _token_ids.decode(_read(name))
    except msgspec.MsgspecError as error:
        raise PromptError(
            f"{name}: not a JSON list of token ids: {error}", hint="write it like [1, 2, 3]"
        ) from error
    if any(not 0 <= token < 2**32 for token in tokens):
        raise PromptError(f"{name}: a token id is out of range", hint="write it like [1, 2, 3]")
    return tokens


def _read(name: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
        else:
            with open(Path(name).expanduser(), "rb") as file:
                data = file.read(MAX_PROMPT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PromptError(f"{name}: {reason}", hint=f"ls -l {name}") from error
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptError(f"{name}: larger than {MAX_PROMPT_BYTES:,} bytes")
    return data


def _as_unicode(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{what} is not UTF-8: byte {error.start:,} is 0x{data[error.start]:02x}",
            hint=_CONVERTING.get(what, f"convert it: iconv -f LATIN1 -t UTF-8 {shlex.quote(what)}"),
        ) from error
