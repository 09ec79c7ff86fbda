"""What there is to ask: completions, models, metrics, health."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import trio
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daemon.door.answering import Answering
from daemon.door.asked import Asked, read_chat, read_text
from daemon.door.gliad import Gliad, is_given_up
from daemon.door.metrics import CONTENT_TYPE, DoorMetrics
from daemon.door.models import TextModels
from daemon.door.replies import usage_of
from daemon.door.responses import JSON, AnswerResponse
from daemon.verbs.text import find_model
from glia.client import Client
from glia.local.messages import Generated
from glia.local.values import ModelValue

CONVERSATION_HEADER = "glia-conversation"
SAID = "glia.said"  # in a scope: what the log may say of the answer


class _Model(Struct, frozen=True):
    """A model as OpenAI's API lists it; `context_length` is ours."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "local"
    context_length: int | None = None


class _Models(Struct, frozen=True):
    data: list[_Model]
    object: str = "list"


class Endpoints:
    """All of them, over one gliad."""

    def __init__(self, gliad: Gliad, metrics: DoorMetrics) -> None:
        self._gliad = gliad
        self._metrics = metrics
        self._models = TextModels()

    def routes(self) -> list[Route]:
        """Where they are; their names are what the log calls them."""
        return [
            Route("/health", self._health, name="health"),
            Route("/metrics", self._show_metrics, name="metrics"),
            Route("/v1/models", self._list_models, name="models"),
            Route("/v1/models/{name:path}", self._show_model, name="model"),
            Route("/v1/chat/completions", self._chat, methods=["POST"], name="chat"),
            Route("/v1/completions", self._complete, methods=["POST"], name="completions"),
        ]

    async def _health(self, _request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def _show_metrics(self, _request: Request) -> Response:
        status = await self._gliad.ask(Client.status)
        return Response(self._metrics.text(status), media_type=CONTENT_TYPE)

    async def _list_models(self, _request: Request) -> Response:
        models = await self._gliad.ask(Client.models)
        return _json(_Models([_model(model) for model in models]))

    async def _show_model(self, request: Request) -> Response:
        models = await self._gliad.ask(Client.models)
        return _json(_model(find_model(models, request.path_params["name"])))

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, read_chat)

    async def _complete(self, request: Request) -> Response:
        return await self._answer(request, read_text)

    async def _answer(self, request: Request, read: Callable[[bytes, str], Asked]) -> Response:
        named = request.headers.get(CONVERSATION_HEADER, "")
        asked = await trio.to_thread.run_sync(read, await request.body(), named)

        def answered(done: Generated) -> None:
            self._metrics.observe_ttft(done.ttft_ms / 1000)
            request.scope[SAID] = _line(asked.model, done)

        def work(client: Client) -> Iterator[bytes]:
            return Answering(client, self._models, asked, answered, is_given_up).replies()

        return AnswerResponse(self._gliad, work, is_stream=asked.is_stream)


def _json(value: Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type=JSON)


def _model(model: ModelValue) -> _Model:
    return _Model(model.name, context_length=model.context_tokens)


def _line(model: str, done: Generated) -> str:
    """For the log: counts, never what was said."""
    usage = usage_of(done.usage)
    cached = usage.prompt_tokens_details.cached_tokens
    return (
        f" {model}: prompt {usage.prompt_tokens} cached {cached} "
        f"answer {usage.completion_tokens} {done.finish_reason} ttft {done.ttft_ms:.0f} ms"
    )
