"""Traces of conversations: made of what their files say, signed by this node's neuron."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

import trio

from daemon.attachments import Layout
from daemon.log_chain import chain_of
from daemon.neuron_key import neuron_signer
from daemon.parts import Parts
from glia.errors import BadRequest
from glia.graph.conversation import ANSWER_ROLE, Message, Replay
from glia.graph.tokens import unpack_tokens
from glia.graph.trace import Answer, ClassRun, SignedTrace, Trace, class_runs, sign_trace
from glia.graph.window import WindowRecord
from glia.local import messages as m

_PART_BYTES = 512 * 1024


async def part(parts: Parts, call: m.Trace) -> m.TraceReply:
    """From a byte on. Raises: as `make`."""
    data = (await make(parts, call.name)).encoding
    return m.TraceReply(call.id, data[call.start : call.start + _PART_BYTES], len(data))


async def make(parts: Parts, name: str) -> SignedTrace:
    """The trace of what a conversation says now; the same until it says more.

    Raises: UnknownConversation, ConversationBusy, BadRequest (it says nothing, or nothing is
        known of its profile), StoreBroken.
    """
    replay = await parts.conversations.read(name)
    if not replay.tokens:
        raise BadRequest(f"{name} says nothing yet", hint="gliad conversations")
    stored = await chain_of(parts.memory, replay)
    # In a group's domain names follow from its secret, too: nobody else could compute them.
    chain = [*takewhile(lambda record: record.root is None, stored)]
    trace = _trace(replay, chain, _computed_in(parts, replay, chain))
    signer = await trio.to_thread.run_sync(neuron_signer, parts.paths.neuron_key)
    return sign_trace(trace, signer)


@dataclass(frozen=True, slots=True)
class _Computed:
    """What a conversation is computed in."""

    layout: Layout
    runs: tuple[ClassRun, ...]


def _computed_in(parts: Parts, replay: Replay, chain: list[WindowRecord]) -> _Computed:
    """As its windows say; where there are none, as its engine does that was here last."""
    if chain:
        layout = Layout(chain[0].profile_id, len(chain[0].tokens))
        return _Computed(layout, class_runs([record.numerics_class for record in chain]))
    begin = replay.head.begin
    for attachment in reversed(parts.attachments.all()):
        if (attachment.model_id, attachment.dtype) == (begin.model_id, begin.dtype):
            run = ClassRun(attachment.binding.numerics_class, 0)
            return _Computed(attachment.layout, (run,))
    raise BadRequest(
        f"{begin.model} was never loaded here, so nothing is known of its windows",
        hint="ask it something first: gliad run",
    )


def _trace(replay: Replay, chain: list[WindowRecord], computed: _Computed) -> Trace:
    begin = replay.head.begin
    answers = (_answer(message) for message in replay.messages if message.role == ANSWER_ROLE)
    return Trace(
        model_id=begin.model_id,
        profile_id=computed.layout.profile_id,
        block_size=computed.layout.block_size,
        time_us=replay.head.used_us,
        model=begin.model,
        dtype=begin.dtype,
        tokens=unpack_tokens(bytes(replay.tokens)),
        answers=tuple(answer for answer in answers if answer is not None),
        windows=tuple(record.window_id for record in chain),
        runs=computed.runs,
    )


def _answer(message: Message) -> Answer | None:
    """Where a model said something: what was written as if it had is text that was asked."""
    is_said = message.content is None or message.sampling is not None
    if not is_said or not 0 < message.start < message.end:
        return None
    return Answer(message.start, message.end, message.sampling)
