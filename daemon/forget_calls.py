"""Forget, Gc and Explain: what is asked of what nobody needs any more, or would need."""

from __future__ import annotations

from daemon.explaining import explain
from daemon.link import Deliver
from daemon.parts import Parts
from glia.local.messages import Explain, Forget, ForgetReply, Gc, GcReply, Progress, Reply

ForgetCall = Forget | Gc | Explain


async def answer(parts: Parts, call: ForgetCall, post: Deliver) -> Reply:
    """The reply to a call. Raises: GliaError."""

    def tell(what: str, done: int, total: int) -> None:
        post(Progress(call.id, what, done, total))

    match call:
        case Forget():
            gone = await parts.forgetting.forget(call.name, tell)
            return ForgetReply(
                call.id,
                gone.num_windows,
                gone.freed_bytes,
                gone.num_shared,
                gone.num_published,
                was_damaged=gone.num_damaged > 0,
            )
        case Gc():
            gone = await parts.forgetting.collect(tell, unreferenced=call.unreferenced)
            return GcReply(call.id, gone.num_conversations, gone.num_windows, gone.freed_bytes)
        case Explain():
            return await explain(parts, call)
