"""A log is run again on an engine of its model, and nothing of that is kept."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain as joined

import trio
from msgspec import structs

from daemon.binding import bind
from daemon.link import Deliver, EngineLink
from daemon.parts import Parts
from daemon.taken import Running
from glia.errors import BadRequest, Cancelled, EngineFailed, GliaError
from glia.graph.answers import are_in_order
from glia.graph.conversation import Begin, Turn
from glia.graph.ids import ModelId, WindowId, short
from glia.graph.tokens import TOKEN_BYTES, unpack_tokens
from glia.local import messages as m

_MAX_DIFFERING = 1000
_SECOND_US = 1_000_000
_log = logging.getLogger("gliad.replaying")


async def replay(parts: Parts, call: m.Replay, post: Deliver) -> m.Replayed:
    """The reply. Raises: BadRequest, UnknownModel, PromptError, EngineError, CapacityError."""
    if len(call.tokens) % TOKEN_BYTES:
        raise BadRequest("tokens are four bytes each")
    tokens = unpack_tokens(call.tokens)
    if not tokens or not are_in_order(call.chosen, len(tokens)):
        raise BadRequest("what was chosen does not lie in order in the log")
    async with parts.broker.using(call.model, call.dtype, len(tokens)) as engine:
        link = await engine.until_ready(lambda event: post(structs.replace(event, id=call.id)))
        check_model(link, call.model, call.model_id)
        async with _unkept(parts, call, tokens):
            return await _run(parts, call, tokens, link, post)


def check_model(link: EngineLink, name: str, model_id: bytes) -> None:
    """Raises: BadRequest where an engine's model is another than was meant."""
    if link.attach.model_id != model_id:
        raise BadRequest(
            f"{name} is another model here: {short(link.attach.model_id)}, not {short(model_id)}",
            hint="gliad models shows the model_id of each",
        )


async def _run(
    parts: Parts, call: m.Replay, tokens: tuple[int, ...], link: EngineLink, post: Deliver
) -> m.Replayed:
    told: list[int] = []
    positions = list(joined.from_iterable(range(s.start, s.end) for s in call.chosen))

    def take(event: m.Progress | m.Emitted) -> None:
        if isinstance(event, m.Emitted):
            told.extend(event.tokens)
            done = positions[min(len(told), len(positions)) - 1] + 1
        else:
            done = event.done
        post(m.Progress(call.id, "computing again", done, len(tokens)))

    started = time.monotonic()
    run_id = link.start_replay(call, take)
    generated = await link.finish_run(run_id)
    duration_s = time.monotonic() - started
    if generated.finish_reason == "cancelled":
        raise Cancelled("cancelled while it was computed again")
    if len(told) != len(positions):
        raise EngineFailed(f"the engine told {len(told)} tokens of {len(positions)}")
    differing = [at for at, token in zip(positions, told, strict=True) if tokens[at] != token]
    tip = generated.tip
    records = await parts.memory.chain(WindowId(tip)) if tip is not None else []
    return m.Replayed(
        id=call.id,
        windows=[record.window_id for record in records],
        numerics_class=link.attach.numerics_class,
        profile_id=bind(link.attach).profile.profile_id,
        num_same=len(told) - len(differing),
        differing=differing[:_MAX_DIFFERING],
        duration_s=duration_s,
        warning=generated.warning,
    )


@asynccontextmanager
async def _unkept(parts: Parts, call: m.Replay, tokens: tuple[int, ...]) -> AsyncIterator[None]:
    """Afterwards what was computed of these tokens is forgotten, but for what others have."""
    conversations = parts.conversations
    name, model_id = conversations.new_name(), ModelId(call.model_id)
    with conversations.answering(name, Running(list(tokens), model_id)):
        try:
            yield
        finally:
            now_us = int(time.time() * _SECOND_US)
            begin = Begin(now_us, name, call.model, call.dtype, model_id)
            turn = Turn(now_us, 0, tokens, (), None)
            with trio.CancelScope(shield=True):
                try:
                    await conversations.create(name, (begin, turn), marked=True)
                except GliaError as error:
                    _log.warning("what was computed again is not forgotten yet: %s", error)
                    conversations.strays = True
