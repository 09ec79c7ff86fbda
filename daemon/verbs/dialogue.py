"""A conversation as one process goes on with it: its log, its messages, the next prompt."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from daemon.verbs.text import chat_template
from daemon.verbs.turn_values import turn_value
from glia.client import Client
from glia.errors import BadRequest, UnknownConversation
from glia.graph.conversation import ANSWER_ROLE
from glia.graph.privacy import tightened_words
from glia.local.messages import Generated
from glia.local.values import MessageValue, ModelValue, TurnValue
from glia.model.chat import Message
from glia.model.tokenizer import Tokenizer
from glia.model.turns import (
    NextPrompt,
    PlacedMessage,
    as_messages,
    message_text,
    next_prompt,
    raw_prompt,
)


class Dialogue:
    """What was said so far.

    Args:
        name: "" where it has none: gliad gives it one with the first answer, if it keeps it.
        exists: whether gliad has it.

    Attributes:
        tokens: the log.
    """

    def __init__(
        self,
        model: ModelValue,
        name: str,
        *,
        exists: bool = False,
        tokens: Sequence[int] = (),
        messages: Sequence[MessageValue] = (),
    ) -> None:
        self.model = model
        self.name = name
        self.tokens = list(tokens)
        self.messages = list(messages)
        self._exists = exists

    @property
    def is_empty(self) -> bool:
        return not self.tokens

    @property
    def label(self) -> str:
        """Of what was said last, the strictest."""
        return self.messages[-1].visibility if self.messages else "public"

    def texts(self, tokenizer: Tokenizer) -> list[tuple[str, str]]:
        """Role and text of every message."""
        return [(said.role, message_text(tokenizer, self.tokens, said)) for said in self.messages]

    def check_roles(self, tokenizer: Tokenizer) -> None:
        """Raises: PromptError, BadRequest where no chat template can go on with it."""
        chat_template(self.model)
        as_messages(tokenizer, self.tokens, self.messages)

    def needs_system(self, tokenizer: Tokenizer, system: str | None) -> bool:
        """Whether a system message is still to be said.

        Raises: BadRequest where the conversation began with another, or without one.
        """
        if system is None or self.is_empty:
            return system is not None
        if ("system", system) not in self.texts(tokenizer)[:1]:
            raise BadRequest(
                f"{self.name} did not begin with this system message",
                hint="leave out --system, or give another --conversation",
            )
        return False

    def with_messages(
        self, tokenizer: Tokenizer, new: Sequence[Message], labels: Sequence[str]
    ) -> NextPrompt:
        """The prompt that says these by the chat template. Raises: PromptError, BadRequest."""
        template = chat_template(self.model)
        return next_prompt(template, tokenizer, self.tokens, self.messages, new, labels)

    def with_text(self, tokenizer: Tokenizer, text: str, label: str) -> NextPrompt:
        """The prompt that goes on with a text as it is. Raises: PromptError."""
        return raw_prompt(tokenizer, self.tokens, self.messages, text, label)

    def with_tokens(self, tokens: Sequence[int], label: str) -> NextPrompt:
        """The prompt that goes on with tokens."""
        keep = len(self.tokens)
        said = PlacedMessage("", None, keep, keep + len(tokens), label)
        return NextPrompt([*self.tokens, *tokens], keep, (said,))

    def again(self) -> NextPrompt:
        """The prompt of the last answer. Raises: BadRequest where there was none."""
        if not self.messages or self.messages[-1].role != ANSWER_ROLE:
            raise BadRequest("there is no answer yet", hint="say something first")
        start = self.messages[-1].start
        return NextPrompt(self.tokens[:start], start, ())

    def turn(self, prompt: NextPrompt) -> TurnValue:
        """What gliad is to make of it. What it keeps nowhere is a new conversation each time."""
        if self._exists or self.name:
            return turn_value(prompt, self.name, create=not self._exists)
        whole = turn_value(prompt)
        return structs.replace(whole, keep=0, messages=[*self._kept(prompt), *whole.messages])

    def take(self, prompt: NextPrompt, done: Generated) -> None:
        """Go on from an answer; where it was not recorded, from where it was before."""
        if self.name and not done.conversation:
            return
        start = len(prompt.tokens)
        answer = MessageValue(ANSWER_ROLE, None, start, start + len(done.tokens), "public")
        said = [*self._kept(prompt), *turn_value(prompt).messages, answer]
        self.messages = _tightened(said)
        self.tokens = [*prompt.tokens, *done.tokens]
        self.name = done.conversation
        self._exists = bool(done.conversation)

    def _kept(self, prompt: NextPrompt) -> list[MessageValue]:
        return [said for said in self.messages if said.end <= prompt.keep]


def _tightened(messages: Sequence[MessageValue]) -> list[MessageValue]:
    """As gliad labels them: never looser than the one before (glia/graph/privacy.py)."""
    labels = tightened_words(said.visibility for said in messages)
    return [
        structs.replace(said, visibility=label)
        for said, label in zip(messages, labels, strict=True)
    ]


def open_dialogue(client: Client, model: ModelValue, name: str | None) -> Dialogue:
    """The conversation of that name, one that is still to be made, or (None) a new one.

    Raises: BadRequest where it is another model's, UnknownConversation.
    """
    if name is None:
        return Dialogue(model, "")
    try:
        found = client.conversation(name)
    except UnknownConversation:
        if not name or name.startswith("@"):  # gliad makes these names up
            raise
        return Dialogue(model, name)
    about = found.about
    if model.model_id is not None and about.model_id.hex() != model.model_id:
        raise BadRequest(
            f"{name} is a conversation with {about.model}, not with {model.name}",
            hint=f"gliad chat {about.model} --conversation {name}",
        )
    return Dialogue(model, name, exists=True, tokens=found.tokens, messages=found.messages)
