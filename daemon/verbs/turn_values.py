"""A prompt of glia.model.turns as what a Generate means to its conversation."""

from __future__ import annotations

from glia.local.values import MessageValue, TurnValue
from glia.model.turns import NextPrompt


def turn_value(prompt: NextPrompt, name: str = "", *, create: bool | None = None) -> TurnValue:
    """The turn of a prompt.

    Args:
        name: the conversation's; "" records an anonymous one.
        create: whether it is to be made: None if need be, True must, False must not.
    """
    messages = [
        MessageValue(said.role, said.content, said.start, said.end, said.visibility)
        for said in prompt.messages
    ]
    return TurnValue(name, prompt.keep, messages, create)
