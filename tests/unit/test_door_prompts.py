"""Prompts of chats that only just fit a frame of the local API, or do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from daemon.door.asked import read_chat, read_text
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


def prompt_of(data_dir: Path, world: World, text: str, **fields: Any) -> Prompt:
    value = structs.replace(world.model, context_tokens=None)
    model = TextModel(value, Tokenizer.load(world.model.source), ChatTemplate(TRIMMING, {}))
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], **fields}
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


def labels_of(prompt: Prompt) -> list[tuple[str, str]]:
    assert prompt.turn is not None
    return [(said.role, said.visibility) for said in prompt.turn.messages]


def test_what_a_request_does_not_label_is_as_the_settings_have_it(
    gliad: FakeGliad, world: World, tmp_path: Path
) -> None:
    said = [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}]
    for default in ("private", "public"):
        world.settings["conversations.visibility"] = f'"{default}"'
        for glia, labels in (
            ({}, [default, default]),
            ({"visibility": "public"}, ["public", "public"]),
            ({"system_visibility": "public"}, ["public", default]),
            ({"system_visibility": "private"}, ["private", default]),
        ):
            prompt = prompt_of(tmp_path, world, "Hi", messages=said, glia=glia)
            assert labels_of(prompt) == [("system", labels[0]), ("user", labels[1])]


def test_a_text_is_a_message_only_where_it_is_public(
    gliad: FakeGliad, world: World, tmp_path: Path
) -> None:
    model = TextModel(world.model, Tokenizer.load(world.model.source), None)
    for glia, prompt in (({}, "Hi there"), ({"visibility": "public"}, [1, 2, 3])):
        body = {"model": "tiny", "prompt": prompt, "glia": glia}
        with Client.connect(tmp_path) as client:
            made = make_prompt(client, model, read_text(json.dumps(body).encode()))
        if not glia:
            assert made.turn is None
            continue
        assert labels_of(made) == [("", "public")]
        assert (made.turn.messages[0].start, made.turn.messages[0].end) == (0, 3)
