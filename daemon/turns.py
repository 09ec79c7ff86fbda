"""A turn of a conversation: checked before it runs, written with its answer.

What runs outside of a named conversation is recorded as an anonymous one.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
from msgspec import structs

from daemon.conversations import Conversations
from daemon.domains import Groups
from daemon.taken import Running
from glia.errors import BadRequest, GliaError, MalformedParticle, UnknownConversation
from glia.graph.conversation import Begin, Head, Message, check_spans, make_turn, new_head
from glia.graph.domain import Domain, domain_of
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, WindowId, short
from glia.graph.privacy import Visibility, parse_label
from glia.graph.sampling import Sampling
from glia.graph.tokens import pack_tokens
from glia.local.messages import Attach, Emitted, Explain, Generate, Generated, Progress
from glia.local.values import MessageValue, SamplingValue, TurnValue

_SECOND_US = 1_000_000
_PRIVATE = Visibility.PRIVATE
_NOTHING_SAID = new_head(Begin(0, "", "", "", ModelId(bytes(32))))
_log = logging.getLogger("gliad.turns")


class OpenTurn:
    """A request's place in a conversation, while it runs.

    Attributes:
        name: the conversation's, "" where it is not kept.
        dtype: what the conversation is computed in, None where it is new.
        num_public: leading tokens of the prompt that peers may be asked about (C19); once checked.
        group: who may read what follows those; None: nobody; once checked.
        num_shared: leading tokens that are public, then the group's; once checked.
    """

    def __init__(
        self,
        conversations: Conversations,
        name: str,
        call: Generate,
        base: Head | None,
        running: Running,
    ) -> None:
        self._conversations = conversations
        self._name = name
        self._call = call
        self._base = base
        self._running = running
        self._asked = call.turn or TurnValue()
        self._messages, self._group = _messages(self._asked.messages, conversations.groups)
        self._keeps_anonymous = conversations.settings.anonymous_hours > 0
        is_named = base is not None or bool(self._asked.conversation)
        self._is_kept = is_named or self._keeps_anonymous
        self._is_written = False
        self.num_public = self.num_shared = 0
        self.group: GroupId | None = None
        self._domain_end: int | None = None
        self._begin: Begin | None = base.begin if base is not None else None

    @property
    def name(self) -> str:
        return self._name if self._is_kept else ""

    @property
    def dtype(self) -> str | None:
        return self._base.begin.dtype if self._base is not None else None

    def check(self) -> None:
        """Whether the turn can be part of its conversation. Raises: BadRequest."""
        keep, prompt = self._asked.keep, self._call.tokens
        if keep > len(prompt):
            raise _other_log(self._name)
        check_spans(self._messages, keep, len(prompt))
        base = self._base or _NOTHING_SAID
        head = _asked_of(base, prompt, keep, self._messages, self._group)
        self.num_public, self.group = head.num_public, head.group
        self.num_shared = head.num_shared
        goes_on = head.visibility is Visibility.AGGREGATE  # and so does the answer
        self._domain_end = None if goes_on else head.num_shared
        self._running.num_public, self._running.group = head.num_public, head.group

    def domain(self, block_size: int) -> Domain | None:
        """Where the domain of its group begins in the prompt; once checked.

        None where that group was left: then all that follows is named as what is private is.
        """
        if self.group is None or not self._conversations.groups.is_in(self.group):
            return None
        return domain_of(self.group, self.num_public, block_size, self._domain_end)

    def accept(self, attach: Attach) -> None:
        """Whether this engine may answer. Raises: BadRequest where its model is another."""
        model_id = ModelId(attach.model_id)
        begin = self._begin
        if begin is not None and begin.model_id != model_id:
            raise BadRequest(
                f"{self._name} is of model {begin.model} ({short(begin.model_id)}), "
                f"not of {self._call.model} ({short(model_id)})",
                hint="begin a new conversation: K/V of one model is nothing to another",
            )
        self._running.model_id = model_id
        if begin is None:
            dtype = attach.dtype
            self._begin = Begin(_now_us(), self._name, self._call.model, dtype, model_id)

    def take(self, event: Progress | Emitted) -> None:
        """Something was told of it."""
        if isinstance(event, Emitted):
            self._running.tokens += event.tokens

    async def commit(self, generated: Generated) -> Generated:
        """Write it with its answer, durably; nobody's going away stops that.

        Where it cannot be written the answer says so, and the conversation is as before. So it
        is where there is nothing of an answer because the request was cancelled.
        """
        if self._running.tainted_by is not None:
            tip = generated.tip or self._running.tainted_by  # by which the answer stays marked
            generated = structs.replace(generated, is_tainted=True, tip=tip)
        if generated.finish_reason == "cancelled" and not generated.tokens:
            return generated
        with trio.CancelScope(shield=True):
            try:
                await self._write(generated.tokens, generated.tip)
            except GliaError as error:
                said = [generated.warning] if generated.warning else []
                said.append(f"the conversation was not recorded: {error.message}")
                said.append("what was computed for it goes with: gliad gc --unreferenced")
                return structs.replace(generated, warning="; ".join(said))
        return structs.replace(generated, conversation=self.name)

    async def end(self) -> None:
        """It is over. Where nothing is kept, what was computed for it is to be forgotten, too,
        though nobody has an answer. What goes on with a conversation goes with that."""
        goes_on = self._base is not None and self._asked.keep > 0
        if self._is_written or self._begin is None or self._keeps_anonymous or goes_on:
            return
        if self._is_kept:
            self._name, self._base = self._conversations.new_name(), None
            self._begin = dataclasses.replace(self._begin, name=self._name)
            self._is_kept = False
        with trio.CancelScope(shield=True):
            try:
                await self._write(self._running.tokens[len(self._call.tokens) :], None)
            except GliaError as error:
                _log.warning("what was computed is not forgotten yet: %s", error)
                self._conversations.strays = True

    async def _write(self, answer: Sequence[int], tip: bytes | None) -> None:
        if self._begin is None:
            raise ValueError("accept comes first")
        head = self._base or new_head(self._begin)
        if not self._is_kept:  # its windows are to be forgotten, its text is not to be written
            of_group = self.group is not None  # its windows' names follow from the labels
            self._messages = [
                Message("", None, m.start, m.end, m.visibility if of_group else _PRIVATE)
                for m in self._messages
            ]
        turn = make_turn(
            head.visibility,
            self._asked.keep,
            self._call.tokens,
            self._messages,
            answer,
            WindowId(tip) if tip is not None else None,
            max(head.used_us, _now_us()),
            _sampling(self._call.sampling),
            group=self._group,
            group_before=head.group,
        )
        if self._base is not None:
            await self._conversations.append(self._name, head.extended(turn), turn)
        else:
            records = (self._begin, turn)
            head.extended(turn)
            await self._conversations.create(self._name, records, marked=not self._is_kept)
        self._is_written = True


@asynccontextmanager
async def open_turn(conversations: Conversations, call: Generate) -> AsyncIterator[OpenTurn]:
    """Take a request's place in its conversation.

    Raises: BadRequest (it does not fit the conversation), ConversationBusy, ConversationMoved,
        UnknownConversation, StoreBroken.
    """
    asked = call.turn or TurnValue()
    name = asked.conversation or conversations.new_name()
    exists = name in conversations
    if exists and asked.create:
        raise BadRequest(f"there is a conversation {name} already", hint="gliad conversations")
    if not exists and asked.conversation:
        if asked.create is False:
            raise UnknownConversation(
                f"there is no conversation {name[:80]!r}", hint="gliad conversations"
            )
        conversations.check_new(name)
    running = Running(list(call.tokens))
    with conversations.answering(name, running):
        base = await _base(conversations, name, call) if exists else None
        if base is not None:
            await conversations.look()
            conversations.check_here(base.begin)
        if base is None and asked.keep:
            raise _other_log(name)
        turn = OpenTurn(conversations, name, call, base, running)
        turn.check()
        try:
            yield turn
        finally:
            await turn.end()


def _asked_of(
    base: Head,
    prompt: Sequence[int],
    keep: int,
    messages: Sequence[Message],
    group: GroupId | None,
) -> Head:
    """A conversation after what is asked, before it is answered. Raises: BadRequest."""
    turn = make_turn(
        base.visibility, keep, prompt, messages, (), None, 0, group=group, group_before=base.group
    )
    try:
        return base.extended(turn)
    except MalformedParticle as error:
        raise BadRequest(error.message, hint="begin a new conversation") from error


async def asked_head(conversations: Conversations, call: Generate | Explain) -> Head:
    """How a call's conversation would be after what it asks; nothing is changed.

    Raises: as `open_turn`.
    """
    asked = call.turn or TurnValue()
    base = _NOTHING_SAID
    if asked.keep and asked.conversation in conversations:
        base = await _base(conversations, asked.conversation, call)
    elif asked.keep:
        raise _other_log(asked.conversation)
    messages, group = _messages(asked.messages, conversations.groups)
    check_spans(messages, asked.keep, len(call.tokens))
    return _asked_of(base, call.tokens, asked.keep, messages, group)


async def _base(conversations: Conversations, name: str, call: Generate | Explain) -> Head:
    """The conversation, cut to what the turn keeps. Raises: BadRequest where it differs there."""
    keep = call.turn.keep if call.turn is not None else 0
    replay = await conversations.read(name, at_it=isinstance(call, Generate))
    begin = replay.head.begin
    if call.dtype is not None and call.dtype != begin.dtype:
        raise BadRequest(
            f"{name} is computed in {begin.dtype}, not in {call.dtype}",
            hint="leave --dtype and --canonical out, or begin a new conversation",
        )
    kept = pack_tokens(call.tokens[:keep])
    if replay.tokens[: len(kept)] != kept:
        raise _other_log(name)
    replay.cut(keep)
    return replay.head


def _other_log(name: str) -> BadRequest:
    return BadRequest(
        f"{name} does not begin with the tokens that the turn keeps of it",
        hint="read the conversation again: somebody else went on with it",
    )


def _messages(
    values: Sequence[MessageValue], groups: Groups
) -> tuple[list[Message], GroupId | None]:
    """What is said, and the group that may read some of it. Raises: BadRequest, NotFound."""
    messages: list[Message] = []
    found: set[GroupId] = set()
    for value in values:
        label = parse_label(value.visibility)
        if label is None:
            words = ", ".join(label.word for label in Visibility)
            hint = f"one of: {words}, group:NAME"
            raise BadRequest(f"no visibility {value.visibility!r}", hint=hint)
        visibility, group = label
        if group:
            found.add(groups.named(group).group_id)
        messages.append(Message(value.role, value.content, value.start, value.end, visibility))
    if len(found) > 1:
        raise BadRequest("what is said in one turn is for one group", hint="say it in two turns")
    return messages, next(iter(found), None)


def _sampling(value: SamplingValue) -> Sampling:
    return Sampling(value.temperature, value.top_p, value.top_k, value.seed).plain


def _now_us() -> int:
    return int(time.time() * _SECOND_US)
