"""Answering one request, in a worker thread: from what it asks for to the bytes of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from daemon.door.asked import Asked
from daemon.door.models import TextModel, TextModels
from daemon.door.prompts import make_prompt
from daemon.door.replies import ChatReplies, Replies, TextReplies
from glia.client import Client
from glia.errors import Cancelled
from glia.local.messages import Emitted, Generated, Progress
from glia.local.values import ModelValue
from glia.model.answer import AnswerStream, answer_text

_SHORT = 12  # hex digits of a model_id

Events = Iterator[Progress | Emitted | Generated]


@dataclass(frozen=True)
class Answering:
    """One request on its way.

    Attributes:
        client: a connection of its own.
        answered: is told what gliad said at last.
        is_given_up: whether nobody waits for it any more.
    """

    client: Client
    models: TextModels
    asked: Asked
    answered: Callable[[Generated], None]
    is_given_up: Callable[[], bool]

    def replies(self) -> Iterator[bytes]:
        """The answer: events of a stream as they come, else all at once.

        Raises: GliaError; before the first bytes, or amid a stream.
        """
        model = self.models.get(self.client.models(), self.asked.model)
        prompt = make_prompt(self.client, model, self.asked)
        events = self.client.generate(
            model.value.name,
            prompt.tokens,
            max_tokens=prompt.max_tokens,
            dtype=self.asked.dtype,
            sampling=self.asked.sampling,
            stop_tokens=model.tokenizer.eos_ids,
            stop=self.asked.stop,
            turn=prompt.turn,
            exact=self.asked.exact,
            is_cancelled=self.is_given_up,
        )
        with closing(events):  # type: ignore[type-var]  # a generator: closing cancels
            yield from (self._stream if self.asked.is_stream else self._whole)(model, events)

    def _whole(self, model: TextModel, events: Events) -> Iterator[bytes]:
        for event in events:
            if isinstance(event, Generated):
                self._end(event)
                text = answer_text(event.tokens, self.asked.stop, model.tokenizer)
                yield self._form(model.value).whole(text, event)

    def _stream(self, model: TextModel, events: Events) -> Iterator[bytes]:
        text = AnswerStream(model.tokenizer, self.asked.stop)
        form: Replies | None = None
        for event in events:
            if isinstance(event, Progress):
                continue
            if form is None:
                form = self._form(model.value)
                yield form.begin()
            if isinstance(event, Generated):
                self._end(event)
            piece = text.push(event.tokens) if isinstance(event, Emitted) else text.finish()
            if piece:
                yield form.piece(piece)
            if isinstance(event, Generated):
                yield form.end(event)

    def _end(self, done: Generated) -> None:
        self.answered(done)
        if done.finish_reason == "cancelled":
            raise Cancelled("the request was cancelled", hint="ask again")

    def _form(self, model: ModelValue) -> Replies:
        kind = ChatReplies if isinstance(self.asked.prompt, tuple) else TextReplies
        return kind(
            model.name, _fingerprint(self.client, model, self.asked.dtype), self.asked.wants_usage
        )


def _fingerprint(client: Client, model: ModelValue, dtype: str | None) -> str | None:
    """Numerics class and model_id of the engine that answers, as far as it is known."""
    wanted = (model.name, dtype or model.dtype)
    for engine in client.status().engines:
        is_it = (engine.model, engine.dtype) == wanted
        if is_it and engine.model_id and engine.numerics_class:
            return f"{engine.numerics_class}.{engine.model_id[:_SHORT]}"
    return None
