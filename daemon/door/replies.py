"""Answers in the form of OpenAI's API. Every object of one request shares its head.

`glia` is ours: what the reply was computed from, tier by tier, and where it was recorded.
"""

from __future__ import annotations

import secrets
import time
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from glia.local.messages import Generated
from glia.local.values import CachedValue, UsageValue


class PromptDetails(Struct, frozen=True):
    """`cached_tokens`: found in any tier."""

    cached_tokens: int
    audio_tokens: int = 0


class Usage(Struct, frozen=True):
    """Tokens of one request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Provenance(Struct, frozen=True):
    """cached.l0 + l1 + l2 + peers + computed = usage.prompt_tokens.

    tip: id of the last full window of prompt and answer, hex.
    conversation: where it was recorded, None where it was not kept.
    exact: all K and V are of the engine's own numerics class, or canonical.
    numerics_class: the engine's.
    """

    cached: CachedValue
    computed: int
    tip: str | None
    conversation: str | None
    ttft_ms: float
    warning: str | None
    exact: bool
    numerics_class: str


class Said(Struct, frozen=True):
    """A message of the model, or a piece of one."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    refusal: UnsetType | None = UNSET


class Choice(Struct, frozen=True):
    """The one answer: `message` whole, `delta` a piece, `text` without a chat."""

    index: int = 0
    message: Said | UnsetType = UNSET
    delta: Said | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: None = None
    finish_reason: str | None = None


class Reply(Struct, frozen=True):
    """A whole answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str | None
    choices: tuple[Choice, ...]
    usage: Usage | UnsetType | None = UNSET
    glia: Provenance | UnsetType = UNSET


class Replies(Protocol):
    """How one endpoint says things."""

    def whole(self, text: str, done: Generated) -> bytes:
        """The answer at once, JSON."""

    def begin(self) -> bytes:
        """What a stream begins with."""

    def piece(self, text: str) -> bytes:
        """More text."""

    def end(self, done: Generated) -> bytes:
        """What a stream ends with."""


class _Head:
    """What the objects of one request share. fingerprint: of the model and its arithmetic."""

    def __init__(self, prefix: str, model: str, fingerprint: str | None, has_usage: bool) -> None:
        self._id = f"{prefix}-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._model = model
        self._fingerprint = fingerprint
        self._has_usage = has_usage

    def reply(self, kind: str, *choices: Choice, done: Generated | None = None) -> Reply:
        usage: Usage | UnsetType | None = None if self._has_usage else UNSET
        return Reply(
            id=self._id,
            object=kind,
            created=self._created,
            model=self._model,
            system_fingerprint=self._fingerprint,
            choices=choices,
            usage=usage if done is None else usage_of(done.usage),
            glia=UNSET if done is None else _provenance(done),
        )

    def event(self, kind: str, *choices: Choice) -> bytes:
        return event(self.reply(kind, *choices))

    def end(self, kind: str, last: Choice, done: Generated) -> bytes:
        said = self.event(kind, last)
        if self._has_usage:
            said += event(self.reply(kind, done=done))
        return said + b"data: [DONE]\n\n"


class ChatReplies:
    """Of /v1/chat/completions."""

    def __init__(self, model: str, fingerprint: str | None, has_usage: bool) -> None:
        self._head = _Head("chatcmpl", model, fingerprint, has_usage)

    def whole(self, text: str, done: Generated) -> bytes:
        said = Said("assistant", text, None)
        choice = Choice(message=said, finish_reason=done.finish_reason)
        return msgspec.json.encode(self._head.reply("chat.completion", choice, done=done))

    def begin(self) -> bytes:
        first = Choice(delta=Said("assistant", "", None))
        return self._head.event("chat.completion.chunk", first)

    def piece(self, text: str) -> bytes:
        return self._head.event("chat.completion.chunk", Choice(delta=Said(content=text)))

    def end(self, done: Generated) -> bytes:
        last = Choice(delta=Said(), finish_reason=done.finish_reason)
        return self._head.end("chat.completion.chunk", last, done)


class TextReplies:
    """Of /v1/completions."""

    def __init__(self, model: str, fingerprint: str | None, has_usage: bool) -> None:
        self._head = _Head("cmpl", model, fingerprint, has_usage)

    def whole(self, text: str, done: Generated) -> bytes:
        choice = Choice(text=text, finish_reason=done.finish_reason)
        return msgspec.json.encode(self._head.reply("text_completion", choice, done=done))

    def begin(self) -> bytes:
        return b""

    def piece(self, text: str) -> bytes:
        return self._head.event("text_completion", Choice(text=text))

    def end(self, done: Generated) -> bytes:
        last = Choice(text="", finish_reason=done.finish_reason)
        return self._head.end("text_completion", last, done)


def event(value: Struct) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def usage_of(usage: UsageValue) -> Usage:
    """As OpenAI counts."""
    cached = usage.cached.l0 + usage.cached.l1 + usage.cached.l2 + usage.cached.peers
    total = usage.prompt_tokens + usage.completion_tokens
    return Usage(usage.prompt_tokens, usage.completion_tokens, total, PromptDetails(cached))


def _provenance(done: Generated) -> Provenance:
    return Provenance(
        cached=done.usage.cached,
        computed=done.usage.computed,
        tip=done.tip.hex() if done.tip else None,
        conversation=done.conversation or None,
        ttft_ms=done.ttft_ms,
        warning=done.warning,
        exact=done.exact,
        numerics_class=done.numerics_class,
    )
