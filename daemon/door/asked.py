"""A request's JSON as what it asks for; everything about it that can be wrong is found here.

Raises everywhere: BadField.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from daemon.door.parameters import check_parameters
from glia.errors import BadField
from glia.local.values import SamplingValue
from glia.model.chat import Message

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_TOKENS = 2**20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEXT_DEFAULT_TOKENS = 16  # as OpenAI's API has it
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_SEEDS = 2**63


@dataclass(frozen=True)
class Asked:
    """What a request asks for.

    Attributes:
        prompt: messages (of a chat), a text, or token ids.
        max_tokens: None leaves it to the model's context.
        wants_usage: whether a stream ends with the counts.
        conversation: the named one that it goes on with, "" for none.
    """

    model: str
    prompt: tuple[Message, ...] | str | list[int]
    max_tokens: int | None
    sampling: SamplingValue
    stop: tuple[str, ...]
    is_stream: bool
    wants_usage: bool
    conversation: str


class _StreamOptions(Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _Common(Struct):
    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    conversation: str | None = None


class _Part(Struct):
    type: str
    text: str | None = None


class _Message(Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: Raw = Raw(b"null")
    function_call: Raw = Raw(b"null")
    audio: Raw = Raw(b"null")


class _Chat(_Common, kw_only=True):
    messages: list[_Message]
    max_completion_tokens: int | None = None


class _Text(_Common, kw_only=True):
    prompt: str | list[str | int | list[int]]


_B = TypeVar("_B", bound=_Common)
_fields = msgspec.json.Decoder(dict[str, Raw])
_chat = msgspec.json.Decoder(_Chat)
_text = msgspec.json.Decoder(_Text)
_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"required field `([^`]*)`")


def read_chat(body: bytes, conversation: str = "") -> Asked:
    """The body of /v1/chat/completions.

    Args:
        conversation: the one that a header names.
    """
    chat = _decoded(body, _chat)
    if not chat.messages:
        raise BadField("there are no messages", field="messages")
    messages = tuple(_message(said, at) for at, said in enumerate(chat.messages))
    if chat.max_completion_tokens is not None:
        return _asked(chat, messages, "max_completion_tokens", None, conversation)
    return _asked(chat, messages, "max_tokens", None, conversation)


def read_text(body: bytes, conversation: str = "") -> Asked:
    """The body of /v1/completions. Args: as of `read_chat`."""
    text = _decoded(body, _text)
    return _asked(text, _prompt(text.prompt), "max_tokens", _TEXT_DEFAULT_TOKENS, conversation)


def _decoded(body: bytes, decoder: msgspec.json.Decoder[_B]) -> _B:
    try:
        check_parameters(_fields.decode(body), decoder.type.__struct_fields__)
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadField(f"the body is not JSON: {error}", reason="invalid_json") from error
    except RecursionError as error:
        raise BadField("the body is nested too deeply", reason="invalid_json") from error


def _misfit(said: str) -> BadField:
    """msgspec's sentence as an error that names the field."""
    at, missing = _AT.search(said), _MISSING.search(said)
    parts = [found[1] for found in (at, missing) if found]
    field = ".".join(part for part in parts if part) or None
    reason = "missing_required_parameter" if missing else "invalid_type"
    return BadField(f"{field or 'the body'}: {_AT.sub('', said)}", field=field, reason=reason)


def _asked(
    body: _Common,
    prompt: tuple[Message, ...] | str | list[int],
    limit: str,
    default_tokens: int | None,
    conversation: str,
) -> Asked:
    options = body.stream_options
    if options is not None and not body.stream:
        raise BadField("stream_options are for streams", field="stream_options")
    max_tokens = getattr(body, limit)
    if max_tokens is not None and not 1 <= max_tokens <= MAX_TOKENS:
        raise BadField(f"{limit} is from 1 to {MAX_TOKENS:,}", field=limit)
    return Asked(
        model=body.model,
        prompt=prompt,
        max_tokens=default_tokens if max_tokens is None else max_tokens,
        sampling=_sampling(body),
        stop=_stops(body.stop),
        is_stream=bool(body.stream),
        wants_usage=bool(options and options.include_usage),
        conversation=_conversation(body.conversation or "", conversation),
    )


def _message(said: _Message, at: int) -> Message:
    where = f"messages[{at}]"
    for name in ("tool_calls", "function_call", "audio"):
        if bytes(getattr(said, name)) not in (b"null", b"[]"):
            raise BadField(
                f"{name} are not supported here",
                field=f"{where}.{name}",
                reason="unsupported_parameter",
            )
    if said.role not in _ROLES:
        raise BadField(
            f"a role is one of: {', '.join(_ROLES)}",
            field=f"{where}.role",
            reason="unsupported_value",
        )
    if said.content is None:
        raise BadField("a message has content", field=f"{where}.content")
    return {"role": _ROLES[said.role], "content": _content(said.content, f"{where}.content")}


def _content(content: str | list[_Part], where: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for at, part in enumerate(content):
        if part.type != "text":
            raise BadField(
                f"parts of type {part.type[:40]!r} are not supported: the models here read text",
                field=f"{where}[{at}].type",
                reason="unsupported_value",
            )
        if part.text is None:
            raise BadField("a part of type text has a text", field=f"{where}[{at}].text")
        texts.append(part.text)
    return "\n".join(texts)


def _prompt(given: str | list[str | int | list[int]]) -> str | list[int]:
    """One prompt: a text or token ids, alone or as the one item of a list."""
    if isinstance(given, str):
        return given
    if len(given) == 1 and not isinstance(given[0], int):
        only = given[0]
        if isinstance(only, str):
            return only
        given = list(only)
    tokens = [token for token in given if isinstance(token, int)]
    if len(tokens) < len(given):
        raise BadField(
            "one prompt a request: a text, or a list of token ids",
            field="prompt",
            reason="unsupported_value",
        )
    if not all(0 <= token < 2**32 for token in tokens):
        raise BadField("a token id is from 0 to 4,294,967,295", field="prompt")
    return tokens


def _sampling(body: _Common) -> SamplingValue:
    temperature = 1.0 if body.temperature is None else body.temperature
    top_p = 1.0 if body.top_p is None else body.top_p
    top_k = body.top_k or 0
    in_range = {
        "temperature": (0 <= temperature <= 2, "from 0 to 2"),
        "top_p": (0 < top_p <= 1, "above 0, and 1 at most"),
        "top_k": (0 <= top_k <= MAX_TOKENS, f"from 0 to {MAX_TOKENS:,}"),
        "seed": (-_SEEDS <= (body.seed or 0) < _SEEDS, "a number of 64 bits"),
    }
    for name, (is_good, what) in in_range.items():
        if not is_good:
            raise BadField(f"{name} is {what}", field=name)
    seed = secrets.randbelow(_SEEDS) if body.seed is None else body.seed % _SEEDS
    return SamplingValue(temperature, top_p, top_k, seed)


def _stops(given: str | list[str] | None) -> tuple[str, ...]:
    stops = (given,) if isinstance(given, str) else tuple(given or ())
    sizes = [len(stop) for stop in stops]
    if len(stops) > MAX_STOPS or not all(1 <= size <= MAX_STOP_CHARACTERS for size in sizes):
        raise BadField(
            f"stop has {MAX_STOPS} strings at most, of 1 to {MAX_STOP_CHARACTERS} characters",
            field="stop",
        )
    return stops


def _conversation(in_body: str, in_header: str) -> str:
    if in_body and in_header and in_body != in_header:
        raise BadField("the header names another conversation", field="conversation")
    name = in_body or in_header
    if name and not _NAME.fullmatch(name):
        raise BadField(
            "a conversation's name has letters, digits, . _ - and 64 characters at most",
            field="conversation",
        )
    return name
