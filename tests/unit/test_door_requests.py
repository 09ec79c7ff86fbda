"""What a request's JSON asks for, and every way in which it can be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from daemon.door.asked import Asked, Labels, read_chat, read_text
from daemon.door.parameters import IGNORED, REFUSED
from glia.errors import BadField
from glia.local.values import SamplingValue

SAID = [{"role": "user", "content": "Hi"}]
SEED = 5


def chat(in_header: str = "", /, **fields: Any) -> Asked:
    body = {"model": "tiny", "messages": SAID, "seed": SEED, **fields}
    return read_chat(json.dumps(body).encode(), in_header)


def text(**fields: Any) -> Asked:
    body = {"model": "tiny", "prompt": "Hi", "seed": SEED, **fields}
    return read_text(json.dumps(body).encode())


def test_a_chat_with_nothing_but_what_it_needs() -> None:
    assert chat() == Asked(
        model="tiny",
        prompt=({"role": "user", "content": "Hi"},),
        max_tokens=None,
        sampling=SamplingValue(1.0, 1.0, 0, SEED),
        stop=(),
        is_stream=False,
        wants_usage=False,
        conversation="",
        labels=Labels(None, None),
    )


def test_a_chat_with_everything() -> None:
    asked = chat(
        max_completion_tokens=7,
        max_tokens=9,
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        seed=-1,
        stop=["a", "é"],
        stream=True,
        stream_options={"include_usage": True},
        conversation="trip",
    )
    assert asked.max_tokens == 7
    assert asked.sampling == SamplingValue(0.5, 0.25, 3, 2**63 - 1)
    assert asked.stop == ("a", "é")
    assert (asked.is_stream, asked.wants_usage, asked.conversation) == (True, True, "trip")


def test_null_is_as_good_as_nothing() -> None:
    names = ("max_tokens", "temperature", "top_p", "top_k", "stop", "stream", "stream_options")
    assert chat(**dict.fromkeys((*names, "conversation", *REFUSED, *IGNORED))) == chat()


def test_without_a_seed_no_two_requests_have_the_same() -> None:
    assert len({chat(seed=None).sampling.seed for _ in range(5)}) == 5


def test_roles_and_contents_of_messages() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = chat(
        messages=[
            {"role": "developer", "content": "Be brief"},
            {"role": "user", "content": parts, "name": "Ann"},
            {"role": "assistant", "content": "Yes", "refusal": None, "tool_calls": []},
        ]
    )
    assert asked.prompt == (
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "Yes"},
    )


@pytest.mark.parametrize(
    ("given", "prompt"),
    [("Hi", "Hi"), (["Hi"], "Hi"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2]), ("", ""), ([], [])],
)
def test_prompts_of_completions(given: Any, prompt: Any) -> None:
    assert text(prompt=given).prompt == prompt


def test_completions_are_as_short_as_openai_makes_them() -> None:
    assert text().max_tokens == 16
    assert text(max_tokens=3).max_tokens == 3
    assert text(stop="\n").stop == ("\n",)


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_what_changes_nothing_is_ignored(name: str) -> None:
    assert chat(**{name: {"any": ["thing"]}}) == chat()


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in REFUSED.items() for value in values],
)
def test_values_that_change_nothing_are_taken(name: str, value: Any) -> None:
    assert chat(**{name: value}) == chat()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("logprobs", True),
        ("logprobs", 0),
        ("top_logprobs", 2),
        ("n", 2),
        ("n", True),
        ("n", "1" * 300),
        ("best_of", 3),
        ("echo", True),
        ("suffix", "."),
        ("logit_bias", {"5": 1}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("response_format", {"type": "json_object"}),
        ("modalities", ["audio"]),
        ("reasoning_effort", "low"),
    ],
)
def test_what_would_change_the_answer_is_refused(name: str, value: Any) -> None:
    for ask in (chat, text):
        with pytest.raises(BadField) as caught:
            ask(**{name: value})
        assert (caught.value.field, caught.value.reason) == (name, "unsupported_parameter")
        assert name in caught.value.message


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"temprature": 1}, "temprature", "unknown_parameter"),
        ({"prompt": "Hi"}, "prompt", "unknown_parameter"),
        ({"model": 5}, "model", "invalid_type"),
        ({"model": None}, "model", "invalid_type"),
        ({"messages": "Hi"}, "messages", "invalid_type"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": ["Hi"]}, "messages[0]", "invalid_type"),
        ({"messages": [*SAID, {"content": "x"}]}, "messages[1].role", "missing_required_parameter"),
        ({"messages": [*SAID, {"role": "user"}]}, "messages[1].content", "invalid_value"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
        ({"messages": [{"role": "tool", "content": "5"}]}, "messages[0].role", "unsupported_value"),
        ({"messages": [CALL]}, "messages[0].tool_calls", "unsupported_parameter"),
        ({"messages": [IMAGE]}, "messages[0].content[0].type", "unsupported_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "invalid_value",
        ),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": 2**20 + 1}, "max_tokens", "invalid_value"),
        ({"max_tokens": 10**30}, "max_tokens", "invalid_value"),
        ({"max_tokens": 1.5}, "max_tokens", "invalid_type"),
        ({"max_completion_tokens": -1}, "max_completion_tokens", "invalid_value"),
        ({"temperature": -0.1}, "temperature", "invalid_value"),
        ({"temperature": 2.1}, "temperature", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_type"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"top_p": 1.1}, "top_p", "invalid_value"),
        ({"top_k": -1}, "top_k", "invalid_value"),
        ({"seed": 2**63}, "seed", "invalid_value"),
        ({"stop": ""}, "stop", "invalid_value"),
        ({"stop": ["a"] * 17}, "stop", "invalid_value"),
        ({"stop": ["a" * 257]}, "stop", "invalid_value"),
        ({"stop": 5}, "stop", "invalid_type"),
        ({"stream": "yes"}, "stream", "invalid_type"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"conversation": "../x"}, "conversation", "invalid_value"),
        ({"conversation": "@0123abcd"}, "conversation", "invalid_value"),
        ({"conversation": "a" * 65}, "conversation", "invalid_value"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(BadField) as caught:
        chat(**fields)
    assert (caught.value.field, caught.value.reason) == (field, reason)


@pytest.mark.parametrize("prompt", [["a", "b"], [1, "a"], [[1], [2]], [[1], "a"], ["a", 1]])
def test_one_prompt_a_request(prompt: Any) -> None:
    with pytest.raises(BadField, match="one prompt") as caught:
        text(prompt=prompt)
    assert caught.value.field == "prompt"


@pytest.mark.parametrize("prompt", [[-1], [2**32], [10**40], [True], [1.5], [None], None, {}])
def test_token_ids_are_numbers_in_range(prompt: Any) -> None:
    with pytest.raises(BadField) as caught:
        text(prompt=prompt)
    assert caught.value.field is not None
    assert caught.value.field.startswith("prompt")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(BadField) as caught:
        read_chat(b'{"messages": []}')
    assert (caught.value.field, caught.value.reason) == ("model", "missing_required_parameter")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Hi",
        b'{"model": "tiny"',
        b'{"model": "\xff", "messages": []}',
        b'{"model": "\\ud800", "messages": []}',
        b'{"model": "tiny", "temperature": NaN}',
        b'{"tools": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages": ' + b'[{"tool_calls":' * 50_000 + b"1" + b"}]" * 50_000 + b"}",
    ],
)
def test_what_is_no_json_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BadField) as caught:
        read_chat(body)
    assert (caught.value.field, caught.value.reason) == (None, "invalid_json")


@pytest.mark.parametrize("body", [b"[]", b"5", b'"x"', b"null"])
def test_a_body_is_an_object(body: bytes) -> None:
    with pytest.raises(BadField) as caught:
        read_chat(body)
    assert (caught.value.field, caught.value.reason) == (None, "invalid_type")


def test_a_conversation_is_named_once() -> None:
    assert chat("trip").conversation == "trip"
    assert chat("trip", conversation="trip").conversation == "trip"
    with pytest.raises(BadField):
        chat("trip", conversation="work")
    with pytest.raises(BadField):
        chat("../trip")


WITH_SYSTEM = [{"role": "developer", "content": "Be kind"}, *SAID]


def test_who_may_have_it() -> None:
    assert chat(glia=None).labels == chat(glia={}).labels == Labels()
    assert chat(glia={"visibility": "public"}).labels == Labels("public")
    assert text(glia={"visibility": "private"}).labels == Labels("private")
    assert chat(glia={"visibility": "group:team"}).labels == Labels("group:team")
    both = {"visibility": "group:team", "system_visibility": "group:team"}
    assert chat(messages=WITH_SYSTEM, glia=both).labels == Labels("group:team", "group:team")
    for rest in ({}, *({"visibility": word} for word in ("private", "public", "group:team"))):
        asked = chat(messages=WITH_SYSTEM, glia={"system_visibility": "public", **rest})
        assert asked.labels == Labels(rest.get("visibility"), "public")


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"glia": {"visibility": "all"}}, "glia.visibility", "invalid_value"),
        ({"glia": {"visibility": "aggregate"}}, "glia.visibility", "invalid_value"),
        ({"glia": {"visibility": "group:"}}, "glia.visibility", "invalid_value"),
        ({"glia": {"visibility": "group:" + "x" * 80}}, "glia.visibility", "invalid_value"),
        ({"glia": {"visibility": 1}}, "glia.visibility", "invalid_type"),
        ({"glia": {"numerics": "native"}}, "glia.numerics", "unsupported_value"),
        ({"glia": {"numerics": ""}}, "glia.numerics", "unsupported_value"),
        ({"glia": {"system_visibility": ""}}, "glia.system_visibility", "invalid_value"),
        ({"glia": {"system_visibility": "public"}}, "glia.system_visibility", "invalid_value"),
        ({"glia": {"visibilty": "public"}}, "glia.visibilty", "unknown_parameter"),
        ({"glia": "public"}, "glia", "invalid_type"),
        (
            {
                "messages": WITH_SYSTEM,
                "glia": {"visibility": "public", "system_visibility": "private"},
            },
            "glia.system_visibility",
            "invalid_value",
        ),
        (
            {
                "messages": WITH_SYSTEM,
                "glia": {"visibility": "public", "system_visibility": "group:team"},
            },
            "glia.system_visibility",
            "invalid_value",
        ),
        (
            {
                "messages": WITH_SYSTEM,
                "glia": {"visibility": "group:team", "system_visibility": "private"},
            },
            "glia.system_visibility",
            "invalid_value",
        ),
        (
            {
                "messages": WITH_SYSTEM,
                "glia": {"visibility": "group:team", "system_visibility": "group:club"},
            },
            "glia.system_visibility",
            "invalid_value",
        ),
    ],
)
def test_labels_that_cannot_be(fields: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(BadField) as refused:
        chat(**fields)
    assert (refused.value.field, refused.value.reason) == (field, reason)


def test_a_text_has_no_system_message() -> None:
    with pytest.raises(BadField) as refused:
        text(glia={"system_visibility": "public"})
    assert refused.value.field == "glia.system_visibility"
