"""A model's chat template, rendered in a sandbox: it came with the model, so it is not trusted.

The names a template may use are those that transformers gives it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from glia.errors import BadModelFile, PromptError
from glia.model.read import CONFIG_BYTES, read_bounded, read_json

TEMPLATE = "chat_template.jinja"
TOKENIZER_CONFIG = "tokenizer_config.json"
MAX_TEMPLATE_BYTES = 64 * 1024

_MAX_TEXT = 2**24
_MARKS = ("bos_token", "eos_token", "unk_token", "pad_token")

Message = Mapping[str, str]


class ChatTemplate:
    """A compiled template. Raises (on construction): BadModelFile."""

    def __init__(self, source: str, marks: Mapping[str, str]) -> None:
        self._marks = dict(marks)
        try:
            self._template = _environment().from_string(source)
        except Exception as error:  # the parser lets through what its literals raise
            raise BadModelFile(f"the chat template does not compile: {error}") from error

    @classmethod
    def load(cls, model_dir: Path) -> ChatTemplate | None:
        """The template of a model directory, None where it has none. Raises: BadModelFile."""
        path = model_dir / TOKENIZER_CONFIG
        config = read_json(path, CONFIG_BYTES) if path.exists() else {}
        if (model_dir / TEMPLATE).exists():
            source = _utf8(read_bounded(model_dir / TEMPLATE, MAX_TEMPLATE_BYTES), model_dir)
        else:
            source = _declared(config.get("chat_template"))
        if not source:
            return None
        if len(source.encode(errors="replace")) > MAX_TEMPLATE_BYTES:
            raise BadModelFile(f"{path}: a chat template over {MAX_TEMPLATE_BYTES:,} bytes")
        return cls(source, {mark: _mark(config.get(mark)) for mark in _MARKS})

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt for `messages`, up to where the answer begins.

        Args:
            messages: each has `role` and `content`.
        Raises: PromptError where the template refuses them.
        """
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                **self._marks,
            ):
                size += len(piece)
                if size > _MAX_TEXT:
                    raise PromptError(f"the chat template wrote over {_MAX_TEXT:,} characters")
                pieces.append(piece)
        except PromptError:
            raise
        # A template can raise whatever its expressions raise.
        except Exception as error:
            raise PromptError(
                f"the chat template failed: {error}", hint="use --raw for a prompt without it"
            ) from error
        return "".join(pieces)


class _Sandbox(ImmutableSandboxedEnvironment):
    """jinja2's sandbox, which bounds ranges, and does not bound products."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(v) if isinstance(v, str | list | tuple) else v for v in (left, right)]
        small = all(isinstance(size, int | float) and abs(size) <= 1e6 for size in sizes)
        if not small or (operator == "**" and sizes[1] > 64):
            raise jinja2.TemplateRuntimeError("a product that is too large")
        if operator == "*" and not all(isinstance(v, int | float) for v in (left, right)):
            size = sizes[0] * sizes[1]
            if size > _MAX_TEXT:
                raise jinja2.TemplateRuntimeError("a product that is too large")
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """`{% generation %}` marks what a model learns from in training; here it only stands there."""

    tags = {"generation"}  # noqa: RUF012 -- jinja2 declares it so

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(message)


def _utf8(data: bytes, model_dir: Path) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadModelFile(f"{model_dir / TEMPLATE}: not UTF-8") from error


def _declared(value: Any) -> str:
    """tokenizer_config.json's chat_template: one, or the `default` of several."""
    if isinstance(value, list):
        named = {v.get("name"): v.get("template") for v in value if isinstance(v, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else ""


def _mark(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
