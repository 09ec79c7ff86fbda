"""The prompt of `gliad run`: where its text comes from, and its tokens."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from daemon.verbs.text import files_dir, need_tokenizer, tokenizer_of
from glia.errors import BadRequest, PromptError
from glia.local.messages import MAX_FRAME_BYTES
from glia.local.values import ModelValue
from glia.model.chat import ChatTemplate
from glia.model.tokenizer import Tokenizer, eos_ids

MAX_PROMPT_BYTES = 64 * 1024 * 1024
# msgpack writes a token in at most 5 bytes; the rest of the frame is for the other fields.
MAX_PROMPT_TOKENS = (MAX_FRAME_BYTES - 16 * 1024) // 5

_token_ids = msgspec.json.Decoder(list[int])


@dataclass(frozen=True)
class Prompt:
    """What to continue.

    Attributes:
        stop_tokens: the model's own ends of an answer.
        tokenizer: None where the model has none here; the answer is then tokens only.
    """

    tokens: list[int]
    stop_tokens: tuple[int, ...]
    tokenizer: Tokenizer | None


def read_prompt(args: argparse.Namespace, model: ModelValue) -> Prompt:
    """The prompt that the arguments name. Raises: PromptError, BadRequest, BadModelFile."""
    _check_given(args)
    if args.token_ids is not None:
        tokens, tokenizer = _token_list(args.token_ids), tokenizer_of(model)
    else:
        text = _text(args)
        tokenizer = need_tokenizer(model)
        tokens = _encode(text, tokenizer, model, args)
    _check_length(tokens, model)
    found = files_dir(model)
    return Prompt(tokens, eos_ids(found) if found else (), tokenizer)


def _encode(
    text: str, tokenizer: Tokenizer, model: ModelValue, args: argparse.Namespace
) -> list[int]:
    if not text:
        raise PromptError("the prompt is empty", hint='gliad run MODEL "some text"')
    if args.raw:
        return tokenizer.encode(text, special=True)
    found = files_dir(model)
    template = ChatTemplate.load(found) if found else None
    if template is None:
        raise BadRequest(
            f"model {model.name!r} has no chat template",
            hint="add --raw to continue the text as it is",
        )
    messages = [{"role": "system", "content": args.system}] if args.system else []
    return tokenizer.encode(template.render([*messages, {"role": "user", "content": text}]))


def _check_length(tokens: list[int], model: ModelValue) -> None:
    if not tokens:
        raise PromptError("the prompt is empty", hint="give at least one token")
    limit = min(model.context_tokens or MAX_PROMPT_TOKENS, MAX_PROMPT_TOKENS)
    if len(tokens) >= limit:
        raise PromptError(
            f"the prompt has {len(tokens):,} tokens; {model.name} takes {limit - 1:,} at most",
            hint="shorten the prompt",
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
    name = args.file or "-"
    return _as_unicode(_read(name), "standard input" if name == "-" else name)


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
            hint=f"convert it: iconv -t UTF-8 {what}" if what != "the prompt" else None,
        ) from error
