"""What people ask of traces. No state of its own."""

from __future__ import annotations

from daemon.drawing import sample
from daemon.link import Deliver
from daemon.parts import Parts
from daemon.replaying import replay
from daemon.tracing import part
from glia.local.messages import Replay, Reply, Sample, Trace

TraceCall = Trace | Replay | Sample


async def answer(parts: Parts, call: TraceCall, post: Deliver) -> Reply:
    """The reply to a call. Raises: GliaError."""
    match call:
        case Trace():
            return await part(parts, call)
        case Replay():
            return await replay(parts, call, post)
        case Sample():
            return await sample(parts, call, post)
