"""Forget, Gc and Explain: what is asked of what nobody needs any more, or would need."""

from __future__ import annotations

from daemon.link import Deliver
from daemon.parts import Parts
from glia.errors import BadRequest
from glia.local.messages import Explain, Forget, Gc, Reply

ForgetCall = Forget | Gc | Explain


async def answer(parts: Parts, call: ForgetCall, post: Deliver) -> Reply:
    """The reply to a call. Raises: GliaError."""
    raise BadRequest(f"{type(call).__name__} is not answered here", hint="use a newer gliad")
