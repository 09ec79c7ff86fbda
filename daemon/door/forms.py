"""The JSON of requests as they come, checked for shape: fields, types, nothing unknown."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from daemon.door.parameters import check_parameters
from glia.errors import BadField


class StreamOptions(Struct):
    """`include_usage`: the last event has the counts. Events are not padded, whatever is asked."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class GliaForm(Struct, forbid_unknown_fields=True):
    """Who may have what is said: "private", "public" or "group:NAME". numerics: "canonical"."""

    visibility: str | None = None
    system_visibility: str | None = None
    numerics: str | None = None


class CommonForm(Struct):
    """What both endpoints take. `top_k`, `conversation`, `exact` and `glia` are ours."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    conversation: str | None = None
    exact: bool | None = None
    glia: GliaForm | None = None


class PartForm(Struct):
    """A part of a message's content."""

    type: str
    text: str | None = None


class MessageForm(Struct):
    """A message; what else it may have (a name, say) has no place in a chat template."""

    role: str
    content: str | list[PartForm] | None = None
    tool_calls: Raw = Raw(b"null")
    function_call: Raw = Raw(b"null")
    audio: Raw = Raw(b"null")


class ChatForm(CommonForm, kw_only=True):
    """Of /v1/chat/completions."""

    messages: list[MessageForm]
    max_completion_tokens: int | None = None


class TextForm(CommonForm, kw_only=True):
    """Of /v1/completions. prompt: a text or token ids, alone or as the one item of a list."""

    prompt: str | list[str | int | list[int]]


F = TypeVar("F", bound=CommonForm)
chat_decoder = msgspec.json.Decoder(ChatForm)
text_decoder = msgspec.json.Decoder(TextForm)
_fields = msgspec.json.Decoder(dict[str, Raw])
_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING = re.compile(r"required field `([^`]*)`")
_UNKNOWN = re.compile(r"unknown field `([^`]{1,80})")


def read_form(body: bytes, decoder: msgspec.json.Decoder[F]) -> F:
    """The body of a request. Raises: BadField."""
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
    at, missing, unknown = _AT.search(said), _MISSING.search(said), _UNKNOWN.search(said)
    parts = [found[1] for found in (at, missing, unknown) if found]
    field = ".".join(part for part in parts if part) or None
    reason = "missing_required_parameter" if missing else "invalid_type"
    if unknown:
        reason = "unknown_parameter"
    return BadField(f"{field or 'the body'}: {_AT.sub('', said)}", field=field, reason=reason)
