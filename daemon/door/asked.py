"""A request's JSON as what it asks for; everything about it that can be wrong is found here.

Raises everywhere: BadField.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from daemon.door.forms import (
    CommonForm,
    GliaForm,
    MessageForm,
    PartForm,
    chat_decoder,
    read_form,
    text_decoder,
)
from glia.errors import BadField
from glia.graph.manifest import CANONICAL_DTYPE
from glia.graph.numerics import CANONICAL
from glia.graph.privacy import Visibility, parse_label
from glia.local.values import SamplingValue
from glia.model.chat import Message

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_TOKENS = 2**20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TEXT_DEFAULT_TOKENS = 16  # as OpenAI's API has it
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_SEEDS = 2**63
_MAX_LABEL = 80
_NOBODYS = Visibility.AGGREGATE.word


@dataclass(frozen=True)
class Labels:
    """Of the messages a request adds; None: as the node's settings have it, `system` as `rest`.

    Attributes:
        system: of messages of role system.
    """

    rest: str | None = None
    system: str | None = None


@dataclass(frozen=True)
class Asked:
    """What a request asks for.

    Attributes:
        prompt: messages (of a chat), a text, or token ids.
        max_tokens: None leaves it to the model's context.
        wants_usage: whether a stream ends with the counts.
        conversation: the named one that it goes on with, "" for none.
        labels: who may have what is said.
        exact: use no K/V of another numerics class; None leaves it to the settings.
        dtype: what it is computed in; None leaves it to the model.
    """

    model: str
    prompt: tuple[Message, ...] | str | list[int]
    max_tokens: int | None
    sampling: SamplingValue
    stop: tuple[str, ...]
    is_stream: bool
    wants_usage: bool
    conversation: str
    labels: Labels
    exact: bool | None = None
    dtype: str | None = None


def read_chat(body: bytes, conversation: str = "") -> Asked:
    """The body of /v1/chat/completions.

    Args:
        conversation: the one that a header names.
    """
    chat = read_form(body, chat_decoder)
    if not chat.messages:
        raise BadField("there are no messages", field="messages")
    messages = tuple(_message(said, at) for at, said in enumerate(chat.messages))
    if chat.max_completion_tokens is not None:
        return _asked(chat, messages, "max_completion_tokens", None, conversation)
    return _asked(chat, messages, "max_tokens", None, conversation)


def read_text(body: bytes, conversation: str = "") -> Asked:
    """The body of /v1/completions. Args: as of `read_chat`."""
    text = read_form(body, text_decoder)
    return _asked(text, _prompt(text.prompt), "max_tokens", _TEXT_DEFAULT_TOKENS, conversation)


def _asked(
    body: CommonForm,
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
        labels=_labels(body.glia or GliaForm(), prompt),
        exact=body.exact,
        dtype=_dtype(body.glia or GliaForm()),
    )


def _dtype(form: GliaForm) -> str | None:
    if form.numerics not in (None, CANONICAL):
        raise BadField(
            f"numerics is {CANONICAL!r}, or left out",
            field="glia.numerics",
            reason="unsupported_value",
        )
    return CANONICAL_DTYPE if form.numerics else None


def _message(said: MessageForm, at: int) -> Message:
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


def _content(content: str | list[PartForm], where: str) -> str:
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


def _sampling(body: CommonForm) -> SamplingValue:
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


def _labels(given: GliaForm, prompt: tuple[Message, ...] | str | list[int]) -> Labels:
    rest, system = given.visibility, given.system_visibility
    strictness = {
        word: _strictness(word, name)
        for name, word in (("visibility", rest), ("system_visibility", system))
        if word is not None
    }
    why = ""
    if system and not (isinstance(prompt, tuple) and any(m["role"] == "system" for m in prompt)):
        why = "there is no system message"
    elif system and rest and system != rest and strictness[system] >= strictness[rest]:
        why = f"what follows a {system} system message is {system}: it rests on it"
    if why:
        raise BadField(why, field="glia.system_visibility")
    return Labels(rest, system)


def _strictness(word: str, name: str) -> Visibility:
    label = parse_label(word)
    if label is None or word == _NOBODYS or len(word) > _MAX_LABEL:
        raise BadField(f"{name} is one of: private, public, group:NAME", field=f"glia.{name}")
    return label[0]


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
