"""Conversations without a node: real files, real turns, and an engine that is only its answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import trio

from daemon.config import ConversationsConfig
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.turns import open_turn
from glia.graph.ids import WindowId
from glia.graph.tokens import unpack_tokens
from glia.local import messages as m
from glia.local import values
from tests.builders import CLASS, MODEL

T = TypeVar("T")
SAID = values.MessageValue
SETTINGS = ConversationsConfig()


def opened(directory: Path, settings: ConversationsConfig = SETTINGS) -> Conversations:
    """The conversations of a directory, read anew."""
    return Conversations(ConversationFiles(directory), settings)


def call_of(
    prompt: Sequence[int], turn: values.TurnValue | None = None, dtype: str | None = None
) -> m.Generate:
    return m.Generate(
        id=1,
        model="echo",
        dtype=dtype,
        tokens=list(prompt),
        max_tokens=16,
        sampling=values.SamplingValue(),
        stop_tokens=[],
        stop=[],
        turn=turn,
    )


def turn_of(
    name: str = "", keep: int = 0, *messages: values.MessageValue, create: bool | None = None
) -> values.TurnValue:
    return values.TurnValue(name, keep, list(messages), create)


def attach_of(model_id: bytes = MODEL, dtype: str = "float32") -> m.Attach:
    profile = values.ProfileValue(16, 1, 1, [])
    return m.Attach(1, model_id, profile, CLASS, serves="echo", dtype=dtype)


def answer_of(
    call: m.Generate, answer: Sequence[int], tip: bytes | None = None, reason: str = "length"
) -> m.Generated:
    usage = values.UsageValue(len(call.tokens), len(answer), values.CachedValue(), len(call.tokens))
    return m.Generated(call.id, list(answer), reason, tip, usage, 1.0, {})


async def talk(
    conversations: Conversations,
    prompt: Sequence[int],
    answer: Sequence[int],
    turn: values.TurnValue | None = None,
    *,
    tip: bytes | None = None,
    attach: m.Attach | None = None,
    dtype: str | None = None,
) -> m.Generated:
    """One turn from its call to its reply."""
    call = call_of(prompt, turn, dtype)
    async with open_turn(conversations, call) as under_way:
        under_way.accept(attach or attach_of())
        return await under_way.commit(answer_of(call, answer, tip))


def run(function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **named: Any) -> T:
    """A coroutine function, to its end."""

    async def main() -> T:
        return await function(*args, **named)

    return trio.run(main)


def log_of(conversations: Conversations, name: str) -> tuple[int, ...]:
    """The tokens of one, as its file has them."""
    return unpack_tokens(bytes(run(conversations.read, name).tokens))


def tip_of(number: int) -> WindowId:
    return WindowId(bytes([number]) * 32)


def bytes_of(directory: Path) -> dict[str, bytes]:
    """Every file, by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}
