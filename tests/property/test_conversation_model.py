"""Conversations against dicts: random turns, cuts, forks, marks, damage, and fresh processes."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from daemon.forking import fork
from daemon.memory import Memory
from glia.errors import BadRequest, NotFound, StoreBroken
from glia.graph.ids import WindowId
from glia.graph.tokens import unpack_tokens
from glia.graph.window import WindowRecord
from tests.conversation_parts import SAID, opened, run, talk, tip_of, turn_of
from tests.node_parts import FULL
from tests.vectors import conversation_reference

NAMES = ("a", "b", "c.1")
LABELS = ("public", "aggregate", "private")
names = st.sampled_from(NAMES)
tokens = st.lists(st.integers(0, 2**32 - 1), max_size=12)
shares = st.floats(0, 1)


@dataclass(frozen=True)
class Said:
    """What a conversation must say. messages: role, text, start, end, label; of every token."""

    tokens: tuple[int, ...] = ()
    messages: tuple[tuple[str, str | None, int, int, str], ...] = ()
    tips: tuple[WindowId, ...] = ()
    sizes: tuple[int, ...] = ()  # of the file after each record
    past: tuple[Said, ...] = field(default=(), repr=False)  # what it was before

    def cut(self, num: int) -> Said:
        kept = [m for m in self.messages if m[3] <= num]
        part = [(m[0], None, m[2], num, m[4]) for m in self.messages if m[2] < num < m[3]]
        return replace(self, tokens=self.tokens[:num], messages=(*kept, *part))

    def place(self, share: float) -> int:
        """A position: of a token, or where a message ends."""
        if share < 0.5:
            return round(2 * share * len(self.tokens))
        ends = [0, len(self.tokens), *(message[3] for message in self.messages)]
        return ends[round((2 * share - 1) * (len(ends) - 1))]

    @property
    def num_public(self) -> int:
        leading = itertools.takewhile(lambda message: message[4] == "public", self.messages)
        return max((message[3] for message in leading), default=0)

    @property
    def label(self) -> str:
        return self.messages[-1][4] if self.messages else "public"


class Nothing:
    """No window is stored."""

    async def chain(self, tip: WindowId) -> list[WindowRecord]:
        raise NotFound("not known here")


class ConversationMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp()) / "conversations"
        self.talks = opened(self.directory)
        self.known: dict[str, Said] = {}
        self.marked: dict[str, Said] = {}
        self.num_tips = 0

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory.parent)

    def new_tip(self) -> WindowId | None:
        self.num_tips += 1
        return tip_of(self.num_tips % 250) if self.num_tips % 3 else None

    def path(self, name: str) -> Path:
        return self.directory / f"{name}.conv"

    @rule(
        name=names,
        share=shares,
        asked=st.lists(st.tuples(tokens, st.sampled_from(LABELS), st.booleans()), max_size=3),
        answer=tokens,
    )
    def turn(
        self,
        name: str,
        share: float,
        asked: list[tuple[list[int], str, bool]],
        answer: list[int],
    ) -> None:
        if name in self.marked:
            return
        before = self.known.get(name, Said())
        keep = before.place(share)
        now = before.cut(keep)
        said = []
        for text, label, has_content in asked:
            start = len(now.tokens)
            end = start + len(text)
            content = f"t{len(text)}" if has_content else None
            said.append(SAID("user", content, start, end, label))
            label = LABELS[max(LABELS.index(now.label), LABELS.index(label))]
            now = replace(
                now,
                tokens=(*now.tokens, *text),
                messages=(*now.messages, ("user", content, start, end, label)),
            )
        prompt, tip = now.tokens, self.new_tip()
        reply = run(talk, self.talks, prompt, answer, turn_of(name, keep, *said), tip=tip)
        assert (reply.conversation, reply.warning) == (name, None)
        end = len(prompt) + len(answer)
        tips = before.tips if tip is None or tip in before.tips[-1:] else (*before.tips, tip)
        size = self.path(name).stat().st_size
        self.known[name] = replace(
            now,
            tokens=(*prompt, *answer),
            messages=(*now.messages, ("assistant", None, len(prompt), end, now.label)),
            tips=tips,
            past=(*before.past, before),
            sizes=(*before.sizes, size),
        )

    @rule(name=names, share=shares, wrong=st.integers(0, 2**32 - 1))
    def turn_of_another_log(self, name: str, share: float, wrong: int) -> None:
        log = self.known.get(name, Said()).tokens
        at = round(share * (len(log) - 1)) if log else 0
        if name not in self.known or not log or log[at] == wrong:
            return
        prompt = [*log[:at], wrong, *log[at + 1 :]]
        try:
            run(talk, self.talks, prompt, [1], turn_of(name, at + 1))
        except BadRequest:
            return
        raise AssertionError("tokens that are not the log's were kept")

    @rule(name=names, new=names, share=shares)
    def fork(self, name: str, new: str, share: float) -> None:
        if name not in self.known or new in self.known or new in self.marked:
            return
        old = self.known[name]
        num = old.place(share)
        run(fork, self.talks, cast(Memory, Nothing()), name, new, num)
        made = replace(old.cut(num), tips=(), past=(), sizes=())
        empty = Said()
        self.known[new] = replace(made, past=(empty,), sizes=(self.path(new).stat().st_size,))

    @rule(name=names)
    def mark(self, name: str) -> None:
        if name in self.known:

            async def mark() -> None:
                with self.talks.hold(name):
                    await self.talks.mark(name)

            run(mark)
            self.marked[name] = self.known.pop(name)

    @rule(name=names)
    def remove(self, name: str) -> None:
        if name in self.marked:

            async def remove() -> None:
                with self.talks.hold(name):
                    await self.talks.remove(name)

            run(remove)
            del self.marked[name]

    @rule()
    def reopen(self) -> None:
        self.talks = opened(self.directory)
        assert set(self.talks.counters.values()) == {0}

    @rule(
        name=names,
        share=shares,
        flips=st.booleans(),
        bit=st.integers(0, 7),
        restarts=st.booleans(),
    )
    def damage(self, name: str, share: float, flips: bool, bit: int, restarts: bool) -> None:
        """Cut or flip somewhere in the file: who reads it, or a fresh process, has what was
        before that record."""
        if name not in self.known:
            return
        data = bytearray(self.path(name).read_bytes())
        ends = [end for _, _, end in conversation_reference.split(bytes(data))]
        at = round(share * (len(data) - 1))
        if flips:
            data[at] ^= 1 << bit
        else:
            del data[at:]
        self.path(name).write_bytes(data)
        num_bad = 0 if restarts else self.talks.counters["conversations_bad"]
        if restarts:
            self.talks = opened(self.directory)
        if at < ends[0]:
            with pytest.raises(StoreBroken, match="set aside"):
                run(self.talks.read, name)
            assert self.talks.counters["conversations_bad"] == num_bad + 1
            os.unlink(self.directory / f"{name}.bad")
            del self.known[name]
            return
        known = self.known[name]
        num_kept = sum(size <= at for size in known.sizes)
        if num_kept < len(known.sizes):
            self.known[name] = known.past[num_kept]

    @invariant()
    def all_say_what_they_must(self) -> None:
        if not hasattr(self, "talks"):
            return
        assert set(self.talks.names()) == set(self.known)
        assert set(self.talks.marked()) == set(self.marked)
        for name, known in {**self.known, **self.marked}.items():
            replay = run(self.talks.read, name)
            assert unpack_tokens(bytes(replay.tokens)) == known.tokens
            said = [(m.role, m.content, m.start, m.end, m.visibility.word) for m in replay.messages]
            assert tuple(said) == known.messages
            assert self.talks.head(name).tips == known.tips
            assert replay.head == self.talks.head(name)
            assert replay.head.text_bytes == sum(len(m[1] or "") for m in known.messages)
            assert replay.head.num_public == known.num_public
            if known.tokens:
                assert self.talks.value(name).visibility == known.label
        for path in self.directory.glob("*.conv"):
            said_again = conversation_reference.read(path.read_bytes())
            assert tuple(said_again["tokens"]) == self.known[path.stem].tokens


def test_conversations_say_what_was_said() -> None:
    examples = settings(max_examples=200 if FULL else 25, stateful_step_count=25)
    run_state_machine_as_test(ConversationMachine, settings=examples)
