"""The tokens of a conversation's next prompt, such that what was computed is found again.

A conversation has a log of tokens: its prompts, and its answers as they were sampled. A text
has several encodings, so encoding the whole conversation afresh could give other tokens than
the log's, and no K/V after the first of them could be used. So the log goes on as it is, and
only what comes behind it is taken from the new text: the end of the answer, the new messages,
the beginning of the next answer.

Where a template writes the past differently than before (some leave out what a model thought),
no prompt begins with the log. The tokens are then those of the new text, and `keep` says how
many of the log's still hold.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from glia.errors import PromptError
from glia.graph.conversation import ANSWER_ROLE
from glia.graph.privacy import Visibility
from glia.model.chat import ChatTemplate, Message
from glia.model.tokenizer import TextStream, Tokenizer

_PRIVATE = Visibility.PRIVATE.word

_STAND_IN = re.compile("\ue000([0-9]+)\ue001")  # what is rendered for one message's content

Span = tuple[int, int]


class LoggedMessage(Protocol):
    """A message of a log, as local.values.MessageValue has it."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def visibility(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message, and the tokens that say it: `start` to `end` of the prompt.

    The marks that a template puts around it are not among them, and there are none where the
    template leaves the message out. content: None where it is what the tokens decode to.
    """

    role: str
    content: str | None
    start: int
    end: int
    visibility: str = _PRIVATE


@dataclass(frozen=True, slots=True)
class NextPrompt:
    """A prompt that goes on with a conversation.

    tokens: the whole prompt.
    keep: so many leading ones are the log's; never inside a message.
    messages: those behind `keep`, in order; the new ones are the last.
    """

    tokens: list[int]
    keep: int
    messages: tuple[PlacedMessage, ...]


def next_prompt(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    log_tokens: Sequence[int],
    log_messages: Sequence[LoggedMessage],
    new_messages: Sequence[Message],
    new_labels: Sequence[str] = (),
) -> NextPrompt:
    """The prompt that goes on with a log, or begins one.

    Args:
        log_tokens: all of it; an answer that was broken off has no end mark in it.
        new_messages: each has `role` and `content`.
        new_labels: how each of them is labelled; () where all are private.
    Raises: PromptError where the template refuses the messages, or none made the log.
    """
    said: list[Message] = [*as_messages(tokenizer, log_tokens, log_messages), *new_messages]
    text = template.render(said)
    fresh, places = tokenizer.encode_placed(text)
    spans = _in_order(_tokens_of(places, *chars) for chars in _characters(template, said, text))
    labels = [message.visibility for message in log_messages]
    labels += new_labels or [_PRIVATE] * len(new_messages)
    same = _num_same(log_tokens, fresh)
    cut = _end_of_log(tokenizer, log_tokens, fresh, same)
    if cut is None:
        return _rewritten(tokenizer, fresh, same, log_messages, said, spans, labels)
    keep = len(log_tokens)
    tokens = [*log_tokens, *fresh[cut:]]
    placed = [
        _placed(tokenizer, tokens, message, _moved(span, keep - cut, keep), label)
        for message, span, label in list(zip(said, spans, labels, strict=True))[len(log_messages) :]
    ]
    return NextPrompt(tokens, keep, tuple(placed))


def raw_prompt(
    tokenizer: Tokenizer,
    log_tokens: Sequence[int],
    log_messages: Sequence[LoggedMessage],
    text: str,
    label: str = _PRIVATE,
) -> NextPrompt:
    """The prompt that goes on with a log by a text without a template.

    The end mark of the last answer is left out: what follows it would be another text.
    Raises: PromptError.
    """
    fresh, places = tokenizer.encode_placed(text, special=not log_tokens)
    keep = end = len(log_tokens)
    placed = []
    last = log_messages[-1] if log_messages else None
    if last and last.start < last.end == end and log_tokens[-1] in tokenizer.eos_ids:
        keep, end = last.start, _without_end_marks(tokenizer, log_tokens, last)
        placed.append(PlacedMessage(last.role, last.content, keep, end, last.visibility))
    first, behind = _tokens_of(places, 0, len(text))
    tokens = [*log_tokens[:end], *fresh]
    said = {"role": "", "content": text}
    placed.append(_placed(tokenizer, tokens, said, (end + first, end + behind), label))
    return NextPrompt(tokens, keep, tuple(placed))


def as_messages(
    tokenizer: Tokenizer, tokens: Sequence[int], messages: Sequence[LoggedMessage]
) -> list[Message]:
    """What a template takes, for the messages of a log.

    Raises: PromptError where one of them has no role, or the first prompt was given as tokens.
    """
    if not all(message.role for message in messages) or is_untold(messages):
        raise PromptError(
            "this conversation has text that is no message of a chat template",
            hint="gliad run MODEL TEXT --raw --conversation NAME goes on with it",
        )
    return [
        {"role": message.role, "content": message_text(tokenizer, tokens, message)}
        for message in messages
    ]


def is_untold(messages: Sequence[LoggedMessage]) -> bool:
    """Whether an answer comes first: then its prompt was given as tokens, without messages."""
    return any(message.role == ANSWER_ROLE for message in messages[:1])


def message_text(tokenizer: Tokenizer, tokens: Sequence[int], message: LoggedMessage) -> str:
    """What a message of a log says: its text as given, or as its tokens decode.

    The model's own end mark is no part of an answer.
    """
    if message.content is not None:
        return message.content
    return tokenizer.decode(tokens[message.start : _without_end_marks(tokenizer, tokens, message)])


def _without_end_marks(tokenizer: Tokenizer, tokens: Sequence[int], message: LoggedMessage) -> int:
    end = message.end
    while end > message.start and tokens[end - 1] in tokenizer.eos_ids:
        end -= 1
    return end


def _rewritten(
    tokenizer: Tokenizer,
    fresh: list[int],
    same: int,
    log_messages: Sequence[LoggedMessage],
    said: Sequence[Message],
    spans: Sequence[Span],
    labels: Sequence[str],
) -> NextPrompt:
    """The prompt where the past is written anew: messages that change are placed again."""
    num_kept = sum(message.end <= same for message in log_messages)
    keep = min([same, *(message.start for message in log_messages[num_kept:])])
    placed = [
        _placed(tokenizer, fresh, message, _moved(span, 0, keep), label)
        for message, span, label in list(zip(said, spans, labels, strict=True))[num_kept:]
    ]
    return NextPrompt(fresh, keep, tuple(placed))


def _placed(
    tokenizer: Tokenizer,
    tokens: Sequence[int],
    message: Message,
    span: Span,
    visibility: str,
) -> PlacedMessage:
    """A message with its text, unless its tokens say just that."""
    start, end = span
    text = message["content"]
    content = None if tokenizer.decode(tokens[start:end]) == text else text
    return PlacedMessage(message["role"], content, start, end, visibility)


def _num_same(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = zip(left, right, strict=False)
    return next(
        (at for at, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right))
    )


def _end_of_log(
    tokenizer: Tokenizer, log: Sequence[int], fresh: Sequence[int], same: int
) -> int | None:
    """How many tokens of `fresh` say what the log says.

    None where `fresh` does not begin with the log's text, or a token of it straddles its end.
    """
    if same == len(log):
        return same
    size = len(tokenizer.decode(log[same:], skip_special=False))
    stream = TextStream(tokenizer, skip_special=False)
    cut = same
    while size > 0 and cut < len(fresh):
        size -= len(stream.push([fresh[cut]]))
        cut += 1
    joined = tokenizer.decode([*log[same:], *fresh[cut:]], skip_special=False)
    is_same_text = joined == tokenizer.decode(fresh[same:], skip_special=False)
    return cut if size == 0 and is_same_text else None


def _characters(template: ChatTemplate, said: Sequence[Message], text: str) -> list[Span]:
    """Where each message's content stands in `text`, by what the template writes around it."""
    marks = _marks(template, said)
    spans, at = [], 0
    for index, message in enumerate(said):
        found = text.find(marks[index], at) if index in marks else -1
        if found < 0:
            spans.append((at, at))
            continue
        start = found + len(marks[index])
        content = message["content"]
        shown = next((s for s in (content, content.strip()) if text.startswith(s, start)), None)
        if shown is None:
            at = max(start, text.find(marks.get(index + 1, ""), start))
        else:
            at = start + len(shown)
        spans.append((start, at))
    return spans


def _marks(template: ChatTemplate, said: Sequence[Message]) -> Mapping[int, str]:
    """What the template writes before each message's content, for those that it shows."""
    stand_ins = [
        {**message, "content": f"\ue000{index}\ue001"} for index, message in enumerate(said)
    ]
    try:
        pieces = _STAND_IN.split(template.render(stand_ins))
    except PromptError:  # it looks at what is said; then nobody knows where that stands
        return {}
    return {int(index): mark for mark, index in zip(pieces[::2], pieces[1::2], strict=False)}


def _tokens_of(places: Sequence[Span], start: int, end: int) -> Span:
    """The tokens that stand for some characters, at their edges perhaps for more.

    Tokens of white space may have no characters of their own (Tokenizer.encode_placed).
    """
    first = bisect_left(places, True, key=lambda place: place[1] > start)
    if end <= start:
        return first, first
    behind = bisect_left(places, True, first, key=lambda place: place[0] >= end < place[1])
    return first, behind


def _in_order(spans: Iterable[Span]) -> list[Span]:
    """A token at the edge of two messages belongs to the first of them."""
    found: list[Span] = []
    behind = 0
    for span in spans:
        start, behind = _moved(span, 0, behind)
        found.append((start, behind))
    return found


def _moved(span: Span, by: int, at_least: int) -> Span:
    return max(span[0] + by, at_least), max(span[1] + by, at_least)
