"""A request's prompt as tokens, and as a turn of the conversation that it names.

HTTP requests bring the whole conversation each time. What is known of it is found by its
tokens; nothing need be named for that. A request that names a conversation goes on with its
log: the answers in it stay the tokens that the model chose, and all of them are found again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from daemon.door.asked import Asked
from daemon.door.models import TextModel
from daemon.verbs.turn_values import turn_value
from glia.client import Client
from glia.client.conversations import Conversation
from glia.errors import BadField, UnknownConversation
from glia.graph.conversation import ANSWER_ROLE
from glia.graph.privacy import Visibility
from glia.local.messages import MAX_FRAME_BYTES
from glia.local.values import MessageValue, TurnValue
from glia.model.answer import text_before_stop
from glia.model.chat import Message
from glia.model.tokenizer import Tokenizer
from glia.model.turns import as_messages, next_prompt

_PRIVATE = Visibility.PRIVATE.word
_TOKEN_BYTES = 5  # at most, as msgpack writes one
_MAX_BYTES = MAX_FRAME_BYTES - 128 * 1024  # the rest of a frame is for the other fields
_MAX_TOKENS = _MAX_BYTES // _TOKEN_BYTES
_ANSWER_TOKENS = 4096  # where a request does not say: K/V is set apart for so many


@dataclass(frozen=True)
class Prompt:
    """What gliad is asked to continue.

    Attributes:
        max_tokens: of the answer.
        turn: None where it is a private text: its conversation has tokens only.
    """

    tokens: list[int]
    max_tokens: int
    turn: TurnValue | None


def make_prompt(client: Client, model: TextModel, asked: Asked) -> Prompt:
    """The prompt of a request. Raises: BadField, PromptError, GliaError."""
    field = "messages" if isinstance(asked.prompt, tuple) else "prompt"
    rest = asked.labels.rest or client.default_visibility()
    tokens, turn = _encode(client, model, asked, rest)
    if not tokens:
        raise BadField("the prompt is empty", field=field)
    most = min(model.value.context_tokens or _MAX_TOKENS, _MAX_TOKENS)
    if len(tokens) >= most:
        raise BadField(
            f"the prompt has {len(tokens):,} tokens; {model.value.name} takes {most - 1:,} at most",
            field=field,
            reason="context_length_exceeded",
        )
    if turn is not None and _TOKEN_BYTES * len(tokens) + _text_bytes(turn) > _MAX_BYTES:
        raise BadField(
            "the messages' texts and tokens are too much for one request",
            field=field,
            reason="context_length_exceeded",
        )
    return Prompt(tokens, asked.max_tokens or min(most - len(tokens), _ANSWER_TOKENS), turn)


def _text_bytes(turn: TurnValue) -> int:
    return sum(len((said.content or "").encode()) for said in turn.messages)


def _encode(
    client: Client, model: TextModel, asked: Asked, rest: str
) -> tuple[list[int], TurnValue | None]:
    """Args: rest: the label of what is no system message."""
    if isinstance(asked.prompt, tuple):
        return _encode_chat(client, model, asked, asked.prompt, rest)
    if asked.conversation:
        raise BadField(
            "a conversation goes on with messages: use /v1/chat/completions",
            field="conversation",
            reason="unsupported_parameter",
        )
    if isinstance(asked.prompt, str):
        tokens = model.tokenizer.encode(asked.prompt, special=True)
    elif max(asked.prompt, default=0) >= model.tokenizer.vocab_size:
        raise BadField("a token id is not in the vocabulary", field="prompt")
    else:
        tokens = asked.prompt
    if rest == _PRIVATE:
        return tokens, None
    return tokens, TurnValue(messages=[MessageValue("", None, 0, len(tokens), rest)])


def _label(asked: Asked, said: Message, rest: str) -> str:
    return (said["role"] == "system" and asked.labels.system) or rest


def _encode_chat(
    client: Client, model: TextModel, asked: Asked, messages: tuple[Message, ...], rest: str
) -> tuple[list[int], TurnValue | None]:
    template, tokenizer = model.template, model.tokenizer
    if template is None:
        raise BadField(
            f"{model.value.name} has no chat template: use /v1/completions",
            field="model",
            reason="unsupported_value",
        )
    log = _log(client, asked.conversation)
    new = messages if log is None else _new_messages(tokenizer, log, messages, asked)
    labels = [_label(asked, said, rest) for said in new]
    before = ((), ()) if log is None else (log.tokens, log.messages)
    prompt = next_prompt(template, tokenizer, *before, new, labels)
    return prompt.tokens, turn_value(prompt, asked.conversation, create=log is None)


def _log(client: Client, name: str) -> Conversation | None:
    """The conversation that goes on, None where a new one begins."""
    if not name:
        return None
    try:
        return client.conversation(name)
    except UnknownConversation:
        return None


def _new_messages(
    tokenizer: Tokenizer, log: Conversation, messages: Sequence[Message], asked: Asked
) -> Sequence[Message]:
    """Those that the log does not have yet. Raises: BadField where others come before them."""
    logged = as_messages(tokenizer, log.tokens, log.messages)
    for at, (had, given) in enumerate(zip(logged, messages, strict=False)):
        if not _is_same(had, given, asked.stop):
            raise BadField(
                f"{asked.conversation} has another message here",
                field=f"messages[{at}]",
                reason="conversation_differs",
            )
    if len(messages) <= len(logged):
        raise BadField(
            f"{asked.conversation} has {len(logged)} messages already; send them and the next one",
            field="messages",
            reason="conversation_differs",
        )
    return messages[len(logged) :]


def _is_same(had: Message, given: Message, stop: Sequence[str]) -> bool:
    """Whether a client was told this. Of an answer it was told what stands before a stop string."""
    text = had["content"]
    if had["role"] == ANSWER_ROLE and given["content"] != text:
        text = text_before_stop(text, stop)
    return (had["role"], text) == (given["role"], given["content"])
