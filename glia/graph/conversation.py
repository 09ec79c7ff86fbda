"""A conversation: a log of tokens, messages as spans of it, and the tips it ever had.

Values and rules, pure. Its file is a list of records (spec/8-conversation.md): a begin, an
origin where it is a fork, then a turn for each answer. `Replay` is what they amount to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from glia.errors import BadRequest, MalformedParticle
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, WindowId
from glia.graph.privacy import Visibility, tightened
from glia.graph.publishable import LabelledSpan, public_tokens, shared_tokens
from glia.graph.sampling import Sampling
from glia.graph.tokens import TOKEN_BYTES, pack_tokens

MAX_TOKENS = 2**20
MAX_MESSAGES = 2**14
MAX_TURNS = 2**16
MAX_CONTENT_BYTES = 960 * 1024  # of one message: what a frame of the local API has room for
MAX_TEXT_BYTES = 16 * 2**20  # of all messages
ANSWER_ROLE = "assistant"
_UNSHARED = {Visibility.AGGREGATE: Visibility.PRIVATE}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ANONYMOUS = re.compile(r"@[0-9a-f]{8}")


def is_anonymous(name: str) -> bool:
    """Whether this is a name that gliad made up."""
    return _ANONYMOUS.fullmatch(name) is not None


def is_name(name: str) -> bool:
    """Whether a conversation can be called so; also whether it can be part of a file's name."""
    return is_anonymous(name) or _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Message:
    """Tokens `start` to `end` of the log, with their text where it is not what they decode to.

    sampling: how an answer's tokens were chosen, where that is known.
    """

    role: str
    content: str | None
    start: int
    end: int
    visibility: Visibility = Visibility.PRIVATE
    sampling: Sampling | None = None

    @property
    def text_bytes(self) -> int:
        """What its text takes in UTF-8."""
        return len(self.content.encode()) if self.content is not None else 0

    def cut(self, num_tokens: int) -> Message:
        """The part before `num_tokens`; of a part the text is not known."""
        return replace(self, content=None, end=num_tokens)


@dataclass(frozen=True, slots=True)
class Begin:
    """The first record. `created_us`: microseconds since 1970, UTC."""

    created_us: int
    name: str
    model: str
    dtype: str
    model_id: ModelId


@dataclass(frozen=True, slots=True)
class Origin:
    """What a fork was made of: the first `num_tokens` tokens of `name`."""

    name: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The log from `keep` on: what was asked, and the answer.

    Attributes:
        used_us: microseconds since 1970, UTC.
        messages: those from `keep` on, the answer last.
        tip: the last full window of the log, None under one or where it was not kept.
        group: who may read its aggregate messages; None: there are none, or nobody may.
    """

    used_us: int
    keep: int
    tokens: tuple[int, ...]
    messages: tuple[Message, ...]
    tip: WindowId | None
    group: GroupId | None = None


Record = Begin | Origin | Turn


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a conversation without its tokens and messages.

    Attributes:
        visibility: of the log's last token, the strictest.
        num_public: tokens of the leading public span: what may be published, or asked of peers.
        num_shared: tokens of the leading span that is public, then the group's.
        group: whose that is; None where none of it is.
        tips: every tip it ever had, oldest first, those of parts dropped since included.
        text_bytes: of all messages.
    """

    begin: Begin
    origin: Origin | None
    used_us: int
    num_tokens: int
    num_messages: int
    num_turns: int
    text_bytes: int
    visibility: Visibility
    num_public: int
    tip: WindowId | None
    tips: tuple[WindowId, ...]
    num_shared: int = 0
    group: GroupId | None = None

    def extended(self, turn: Turn) -> Head:
        """After a turn that keeps all of it. Raises: MalformedParticle as `Replay.apply`."""
        _check(turn, self)
        num_public, num_shared = _public_after(turn, self), _shared_after(turn, self)
        return Head(
            begin=self.begin,
            origin=self.origin,
            used_us=turn.used_us,
            num_tokens=turn.keep + len(turn.tokens),
            num_messages=self.num_messages + len(turn.messages),
            num_turns=self.num_turns + 1,
            text_bytes=self.text_bytes + _text_bytes(turn.messages),
            visibility=_label_after(turn, self.visibility),
            num_public=num_public,
            tip=turn.tip,
            tips=_with_tip(self.tips, turn.tip),
            num_shared=num_shared,
            group=(self.group or turn.group) if num_shared > num_public else None,
        )


def new_head(begin: Begin, origin: Origin | None = None) -> Head:
    """A conversation in which nothing was said yet."""
    return Head(begin, origin, begin.created_us, 0, 0, 0, 0, Visibility.PUBLIC, 0, None, ())


class Replay:
    """Records applied one after the other; owned by whoever reads a file.

    Attributes:
        tokens: the log, packed (u32 little-endian).
        messages: in order, spans that do not overlap.
    """

    def __init__(self, begin: Begin, origin: Origin | None = None) -> None:
        self.head = new_head(begin, origin)
        self.tokens = bytearray()
        self.messages: list[Message] = []

    def apply(self, turn: Turn) -> None:
        """Take in a turn.

        Raises: MalformedParticle where it does not fit what is there, loosens a label or
            exceeds a limit.
        """
        if turn.keep > self.head.num_tokens:
            raise MalformedParticle("a turn keeps more tokens than there are")
        self.cut(turn.keep)
        self.head = self.head.extended(turn)
        self.tokens += pack_tokens(turn.tokens)
        self.messages += turn.messages

    def cut(self, num_tokens: int) -> None:
        """Drop what is beyond the first `num_tokens` tokens."""
        if num_tokens >= self.head.num_tokens:
            return
        del self.tokens[TOKEN_BYTES * num_tokens :]
        text_bytes = self.head.text_bytes
        dropped: Message | None = None
        while self.messages and self.messages[-1].end > num_tokens:
            dropped = self.messages.pop()
            text_bytes -= dropped.text_bytes
        label = _label_before(num_tokens, self.messages, dropped)
        if dropped is not None and dropped.start < num_tokens:
            self.messages.append(dropped.cut(num_tokens))
        self.head = replace(
            self.head,
            num_tokens=num_tokens,
            num_messages=len(self.messages),
            text_bytes=text_bytes,
            visibility=label,
            num_public=min(self.head.num_public, num_tokens),
            num_shared=min(self.head.num_shared, num_tokens),
            group=self.head.group if num_tokens > self.head.num_public else None,
        )


def make_turn(
    before: Visibility,
    keep: int,
    prompt: Sequence[int],
    asked: Sequence[Message],
    answer: Sequence[int],
    tip: WindowId | None,
    used_us: int,
    sampling: Sampling | None = None,
    *,
    group: GroupId | None = None,
    group_before: GroupId | None = None,
) -> Turn:
    """The record of an answer.

    Args:
        before: the label of what is kept.
        asked: the messages of the prompt from `keep` on, labelled as their author wants.
        sampling: how the answer's tokens were chosen.
        group: whose those are that he wants aggregate. What would follow another group's is
            private: nobody may read both.
        group_before: whose what is kept is.
    """
    wanted = [message.visibility for message in asked]
    if before is Visibility.AGGREGATE:
        if group_before != group:
            wanted = [_UNSHARED.get(label, label) for label in wanted]
        group = group_before
    labels = tightened(before, wanted)
    if not asked:  # tokens without a message
        labels = [Visibility.PRIVATE if len(prompt) > keep else before]
    messages = [replace(m, visibility=label) for m, label in zip(asked, labels, strict=False)]
    end = len(prompt) + len(answer)
    messages.append(Message(ANSWER_ROLE, None, len(prompt), end, labels[-1], sampling))
    tokens = (*prompt[keep:], *answer)
    if Visibility.AGGREGATE not in labels:
        group = None
    return Turn(used_us, keep, tokens, tuple(messages), tip, group)


def check_spans(messages: Sequence[Message], start: int, end: int) -> None:
    """Whether messages stand in order between two positions, within the limits of one turn.

    Raises: BadRequest.
    """
    for message in messages:
        if not start <= message.start <= message.end <= end:
            raise BadRequest(
                f"a message of tokens {message.start} to {message.end} does not lie in order "
                f"between {start} and {end}",
                hint="messages of a turn go from keep to the prompt's end, one after the other",
            )
        start = message.end
        if message.text_bytes > MAX_CONTENT_BYTES:
            raise BadRequest(
                f"a message of {message.text_bytes:,} bytes",
                hint=f"one has at most {MAX_CONTENT_BYTES:,}",
            )


def _check(turn: Turn, head: Head) -> None:
    """The rules of a turn after `head`, which was cut to what the turn keeps."""
    end = turn.keep + len(turn.tokens)
    try:
        check_spans(turn.messages, turn.keep, end)
    except BadRequest as error:
        raise MalformedParticle(error.message) from error
    labels = [message.visibility for message in turn.messages]
    if turn.keep != head.num_tokens or labels != tightened(head.visibility, labels):
        raise MalformedParticle("a turn does not follow what it keeps, or loosens a label")
    if not _fits_group(turn.group, labels, head):
        raise MalformedParticle("a turn's group is not that of its messages")
    if (
        end > MAX_TOKENS
        or head.num_messages + len(turn.messages) > MAX_MESSAGES
        or head.num_turns + 1 > MAX_TURNS
        or head.text_bytes + _text_bytes(turn.messages) > MAX_TEXT_BYTES
    ):
        raise MalformedParticle("a conversation outgrows its limits")


def _fits_group(group: GroupId | None, labels: Sequence[Visibility], head: Head) -> bool:
    """Whether a turn with these labels can be of this group, after `head`."""
    if Visibility.AGGREGATE not in labels:
        return group is None
    return head.visibility is not Visibility.AGGREGATE or group == head.group


def _label_before(position: int, kept: Sequence[Message], dropped: Message | None) -> Visibility:
    """The label of the token before `position`, where the log is cut.

    Tokens between two messages belong to the one after them; what no message follows is private.
    """
    if kept and kept[-1].end == position:
        return kept[-1].visibility
    if position == 0:
        return Visibility.PUBLIC
    return dropped.visibility if dropped is not None else Visibility.PRIVATE


def _label_after(turn: Turn, before: Visibility) -> Visibility:
    """The label of a turn's last token."""
    end = turn.keep + len(turn.tokens)
    if turn.messages and turn.messages[-1].end == end:
        return turn.messages[-1].visibility
    return Visibility.PRIVATE if turn.tokens else before


def _public_after(turn: Turn, head: Head) -> int:
    """How many leading tokens are public after a turn."""
    if head.visibility is not Visibility.PUBLIC:
        return head.num_public
    return public_tokens([(0, turn.keep, Visibility.PUBLIC), *_spans(turn)])


def _shared_after(turn: Turn, head: Head) -> int:
    """How many leading tokens are public or the group's after a turn."""
    if head.visibility is Visibility.PRIVATE or (head.group or turn.group) is None:
        return max(head.num_shared, _public_after(turn, head))
    return shared_tokens([(0, turn.keep, Visibility.PUBLIC), *_spans(turn)])


def _spans(turn: Turn) -> list[LabelledSpan]:
    return [(message.start, message.end, message.visibility) for message in turn.messages]


def _text_bytes(messages: Iterable[Message]) -> int:
    return sum(message.text_bytes for message in messages)


def _with_tip(tips: tuple[WindowId, ...], tip: WindowId | None) -> tuple[WindowId, ...]:
    return tips if tip is None or tip in tips[-1:] else (*tips, tip)
