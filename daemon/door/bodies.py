"""A request's body, read as a whole within a bound of bytes and of time.

Every body is read to its end before an answer goes out, kept or not: a client that is still
writing would not see the answer.
"""

from __future__ import annotations

import trio
from starlette.types import Message, Receive

from daemon.door.refusals import Refusal

MAX_BODY_BYTES = 4 * 1024 * 1024
_MAX_READ_BYTES = 64 * 1024 * 1024
_KEEP_S = 30.0
_DISCARD_S = 2.0

_TOO_LARGE = Refusal(413, "body_too_large", f"a body has {MAX_BODY_BYTES:,} bytes at most")
_TOO_SLOW = Refusal(408, "body_too_slow", f"a body comes within {_KEEP_S:g} s")


async def read_body(receive: Receive, *, is_kept: bool) -> bytes | Refusal | None:
    """The body, or why it is not taken; None where nobody is there to be answered.

    Args:
        is_kept: else it is discarded, and not waited for long.
    """
    kept = bytearray()
    num_read = 0
    with trio.move_on_after(_KEEP_S if is_kept else _DISCARD_S):
        while num_read <= _MAX_READ_BYTES:
            message = await receive()
            if message["type"] != "http.request":
                return None
            piece = message.get("body", b"")
            num_read += len(piece)
            if is_kept and num_read <= MAX_BODY_BYTES:
                kept += piece
            if not message.get("more_body", False):
                is_large = is_kept and num_read > MAX_BODY_BYTES
                return _TOO_LARGE if is_large else bytes(kept)
        return None
    return _TOO_SLOW


def after_body(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read, then what the client does."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return rest.pop() if rest else await receive()

    return next_message
