"""The door's ASGI app: who may ask, how many at once, errors in OpenAI's form, lines in the log."""

from __future__ import annotations

import logging
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from daemon.door.bodies import after_body, read_body
from daemon.door.endpoints import SAID
from daemon.door.faults import place_of
from daemon.door.guard import OPEN_PATHS, Guard
from daemon.door.metrics import DoorMetrics
from daemon.door.refusals import INTERNAL, Refusal, refusal_of
from daemon.door.responses import response_of
from glia.errors import GliaError

_BUSY = Refusal(
    503, "too_many_requests", "as many requests as may be are under way", can_retry=True
)
_OTHER = "other"  # of a path that a client made up the log says nothing
_log = logging.getLogger("door")


class DoorApp:
    """Serves `routes`.

    Args:
        max_requests: at once, health aside.
    """

    def __init__(
        self, routes: list[Route], guard: Guard, metrics: DoorMetrics, max_requests: int
    ) -> None:
        self._inner = Starlette(
            routes=routes,
            exception_handlers={
                HTTPException: _on_http_error,
                GliaError: _on_error,
                Exception: _on_error,
            },
        )
        self._inner.router.redirect_slashes = False
        self._names = {route.endpoint: route.name for route in routes}
        self._guard = guard
        self._metrics = metrics
        self._max_requests = max_requests
        self._num_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, answered whatever happens."""
        begun_s, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._admit(scope, receive, watched)
        except Exception as error:
            _log.error("a request crashed: %s", place_of(error))
            if not status:
                await response_of(INTERNAL)(scope, receive, watched)
        finally:
            route = self._names.get(scope.get("endpoint", self), _OTHER)
            duration_ms = (time.monotonic() - begun_s) * 1000
            said = str(status) if status else "gone"  # its client, before there was an answer
            _log.info("%s %s %.0f ms%s", route, said, duration_ms, scope.get(SAID, ""))
            self._metrics.count(route, said)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._guard.refuse(scope["path"], scope["headers"])
        if refusal is not None or scope["path"] in OPEN_PATHS:
            await self._serve(scope, receive, send, refusal, is_trusted=False)
        elif self._num_requests >= self._max_requests:
            await self._serve(scope, receive, send, _BUSY, is_trusted=False)
        else:
            self._num_requests += 1
            try:
                await self._serve(scope, receive, send, None, is_trusted=True)
            finally:
                self._num_requests -= 1

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        refusal: Refusal | None,
        *,
        is_trusted: bool,
    ) -> None:
        body = await read_body(receive, is_kept=is_trusted)
        if body is None:
            return
        refusal = body if isinstance(body, Refusal) and refusal is None else refusal
        if refusal is not None:
            await response_of(refusal)(scope, receive, send)
        elif isinstance(body, bytes):
            await self._inner(scope, after_body(body, receive), send)


async def _on_http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        code, message = "method_not_allowed", f"{request.method[:20]} is not for this URL"
    else:
        code, message = "unknown_url", "there is nothing at this URL"
    return response_of(Refusal(status, code, message))


async def _on_error(_request: Request, error: Exception) -> Response:
    return response_of(refusal_of(error) if isinstance(error, GliaError) else INTERNAL)
