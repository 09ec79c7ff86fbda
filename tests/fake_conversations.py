"""Conversations as a fake gliad keeps them: in a dict, told in parts."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from glia.errors import BadRequest, ConversationBusy, StoreBroken, UnknownConversation
from glia.graph.tokens import pack_tokens
from glia.local import messages as m
from glia.local import values

_PART = 3  # messages, and tokens, at once


@dataclass
class Kept:
    tokens: list[int] = field(default_factory=list)
    messages: list[values.MessageValue] = field(default_factory=list)
    used_s: float = 0.0
    model: str = "tiny"
    tip: bytes | None = None


class FakeConversations:
    """By name; `is_kept` False keeps none."""

    def __init__(self, model_id: bytes) -> None:
        self.kept: dict[str, Kept] = {}
        self.is_kept = True
        self.begun: set[str] = set()  # their first turn is under way
        self.aside: set[str] = set()
        self.num_published = 0
        self._model_id = model_id
        self._num_named = 0

    def answer(self, call: m.Call) -> list[Struct] | None:
        """What is said to a call about conversations, None to another."""
        match call:
            case m.Conversations():
                return [self.listing(call)]
            case m.ReadConversation():
                return [self.part(call)]
            case m.Fork():
                return [self.fork(call)]
            case m.Forget():
                return [m.Progress(call.id, "forgetting", 1, 2), self.forget(call)]
        return None

    def record(self, call: m.Generate, answer: list[int]) -> str:
        """A turn. Returns the conversation's name, "" where it is not kept."""
        turn = call.turn or values.TurnValue()
        if not self.is_kept:
            assert turn.keep == 0
            return ""
        name = turn.conversation or self._new_name()
        if turn.create is not None and turn.create is (name in self.kept):
            raise BadRequest(f"create is {turn.create}")
        kept = self.kept.setdefault(name, Kept())
        if kept.tokens[: turn.keep] != call.tokens[: turn.keep] or turn.keep > len(kept.tokens):
            raise BadRequest("not the log's", hint="read it again")
        size = len(call.tokens)
        kept.messages = [said for said in kept.messages if said.end <= turn.keep]
        spans = [turn.keep, *(n for s in turn.messages for n in (s.start, s.end)), size]
        assert spans == sorted(spans)
        said = values.MessageValue("assistant", None, size, size + len(answer))
        kept.messages += [*turn.messages, said]
        kept.tokens = [*call.tokens, *answer]
        kept.used_s += 1.0
        return name

    def value(self, name: str) -> values.ConversationValue:
        if name in self.begun:
            raise ConversationBusy(f"{name} is being answered in", hint="gliad ps")
        if name in self.aside:
            raise StoreBroken(f"{name} could not be read and was set aside")
        if name not in self.kept:
            raise UnknownConversation(
                f"there is no conversation {name!r}", hint="gliad conversations"
            )
        kept = self.kept[name]
        is_anonymous = name.startswith("@")
        return values.ConversationValue(
            name=name,
            model=kept.model,
            dtype="float32",
            model_id=self._model_id,
            anonymous=is_anonymous,
            created_s=1.0,
            used_s=kept.used_s,
            num_tokens=len(kept.tokens),
            num_messages=len(kept.messages),
            tip=kept.tip,
            expires_s=kept.used_s + 3600.0 if is_anonymous else None,
        )

    def listing(self, call: m.Conversations) -> m.ConversationsReply:
        found = [self.value(name) for name in self.kept]
        found.sort(key=lambda value: value.used_s, reverse=True)
        part = found[call.start : call.start + _PART]
        return m.ConversationsReply(call.id, part, len(found))

    def part(self, call: m.ReadConversation) -> m.ConversationReply:
        value, kept = self.value(call.name), self.kept[call.name]
        messages = kept.messages[call.message_start :][:_PART]
        tokens = kept.tokens[call.token_start :][:_PART]
        return m.ConversationReply(call.id, value, messages, pack_tokens(tokens))

    def fork(self, call: m.Fork) -> m.ConversationReply:
        kept = self.kept[self.value(call.name).name]
        size = len(kept.tokens) if call.num_tokens is None else call.num_tokens
        messages = [said for said in kept.messages if said.end <= size]
        self.kept[call.new] = Kept(kept.tokens[:size], messages, kept.used_s + 1)
        return m.ConversationReply(call.id, self.value(call.new), [], b"")

    def forget(self, call: m.Forget) -> m.ForgetReply:
        if call.name in self.aside:
            self.aside.remove(call.name)
            return m.ForgetReply(call.id, 0, 0, 0, was_damaged=True)
        self.value(call.name)
        del self.kept[call.name]
        return m.ForgetReply(call.id, 7, 5 * 2**20, 3, self.num_published)

    def _new_name(self) -> str:
        self._num_named += 1
        return f"@{self._num_named:08x}"
