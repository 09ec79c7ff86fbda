"""Responses: errors, and an answer that is sent as a worker thread brings it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from daemon.door.gliad import Gliad, tell
from daemon.door.refusals import Refusal, refusal_of
from glia.client import Client
from glia.errors import GliaError

JSON = "application/json"
_STREAM = "text/event-stream; charset=utf-8"

Work = Callable[[Client], Iterator[bytes]]


def response_of(refusal: Refusal) -> Response:
    """An error as a response."""
    return Response(refusal.body, refusal.status, refusal.headers, JSON)


class AnswerResponse(Response):
    """What `work` yields in a worker thread, sent as it comes.

    An error before the first bytes is a response of its own, one behind them is an event.
    When the client goes away the work is given up, and waited for.

    Args:
        is_stream: whether it is events; else the first bytes are all.
    """

    def __init__(self, gliad: Gliad, work: Work, *, is_stream: bool) -> None:
        super().__init__(media_type=_STREAM if is_stream else JSON)
        self._gliad = gliad
        self._work = work
        self._is_stream = is_stream
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_gone = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_gone, receive, nursery.cancel_scope)
            refusal = await self._bring(send)
            await trio.lowlevel.checkpoint_if_cancelled()  # work that was given up ends well
            is_gone = False
            nursery.cancel_scope.cancel()
        # Out of the nursery: a response's last bytes end its connection, which counts as gone.
        if is_gone:
            return
        if refusal is not None and not self._has_begun:
            await response_of(refusal)(scope, receive, send)
            return
        last = b"" if refusal is None else b"data: " + refusal.body + b"\n\n"
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _bring(self, send: Send) -> Refusal | None:
        """Send what `work` yields. Returns why there is no more of it, if so."""

        async def take(data: bytes) -> None:
            if not self._has_begun:
                self._has_begun = True
                await send(self._start(data))
            await send({"type": "http.response.body", "body": data, "more_body": True})

        def bring(client: Client) -> None:
            for data in self._work(client):
                tell(take, data)

        try:
            await self._gliad.ask(bring)
        except GliaError as error:
            return refusal_of(error)
        return None

    def _start(self, data: bytes) -> dict[str, object]:
        headers = [(b"content-type", (self.media_type or "").encode())]
        if self._is_stream:
            headers.append((b"cache-control", b"no-cache"))
        else:
            headers.append((b"content-length", str(len(data)).encode()))
        return {"type": "http.response.start", "status": 200, "headers": headers}


async def _cancel_when_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
