"""Prompts of chats that only just fit a frame of the local API, or do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from daemon.door.asked import read_chat
from daemon.door.models import TextModel
from daemon.door.prompts import Prompt, make_prompt
from glia.client import Client
from glia.errors import BadField
from glia.model.chat import ChatTemplate
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import World
from tests.fake_gliad import FakeGliad

TRIMMING = "{% for m in messages %}{{ m.role }}:{{ m.content.strip() }}{% endfor %}"
NUM_LETTERS = 160_000


def prompt_of(data_dir: Path, world: World, text: str) -> Prompt:
    value = structs.replace(world.model, context_tokens=None)
    model = TextModel(value, Tokenizer.load(world.model.source), ChatTemplate(TRIMMING, {}))
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
    with Client.connect(data_dir) as client:
        return make_prompt(client, model, read_chat(json.dumps(body).encode()))


def test_a_text_that_its_tokens_do_not_say_needs_room_beside_them(
    gliad: FakeGliad, world: World, tmp_path: Path
) -> None:
    prompt = prompt_of(tmp_path, world, "a" * NUM_LETTERS)
    assert prompt.turn is not None
    assert [said.content for said in prompt.turn.messages] == [None]
    with pytest.raises(BadField) as refused:
        prompt_of(tmp_path, world, "a" * NUM_LETTERS + " ")
    assert (refused.value.field, refused.value.reason) == ("messages", "context_length_exceeded")
    assert prompt_of(tmp_path, world, "a" * (NUM_LETTERS // 2) + " ").turn is not None
