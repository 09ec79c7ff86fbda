"""Whatever is sent to the door, it is an error that says what is wrong, or what gliad can take."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from daemon.door.asked import MAX_TOKENS, Asked, read_chat, read_text
from daemon.door.guard import Guard
from daemon.door.parameters import IGNORED, REFUSED
from daemon.door.refusals import refusal_of
from glia.errors import BadField
from glia.local import messages as m

_leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_served = (
    *("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "temperature"),
    *("top_p", "top_k", "seed", "stop", "stream", "stream_options", "conversation"),
)
_parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url"]) | _leaves}, optional={"text": _leaves}
)
_messages = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "system", "developer", "assistant", "tool"]) | _leaves,
        "content": st.lists(_parts, max_size=2) | _values,
        "tool_calls": _values,
    },
)
_good: dict[str, Any] = {
    "model": st.text(max_size=9),
    "messages": st.lists(_messages, max_size=3),
    "prompt": st.text(max_size=9) | st.lists(st.integers(-1, 2**33), max_size=5),
    "temperature": st.floats(-1, 3),
    "top_p": st.floats(-0.5, 1.5),
    "top_k": st.integers(-1, 2**21),
    "seed": st.integers(-(2**64), 2**64),
    "max_tokens": st.integers(-1, 2**21),
    "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=20),
    "stream": st.booleans(),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
    "conversation": st.text("ab.@/", max_size=5),
}
_names = st.sampled_from((*_served, *REFUSED, *IGNORED)) | st.text(max_size=10)
_bodies = st.fixed_dictionaries({}, optional=_good)


def check(read: Any, body: bytes) -> None:
    try:
        asked = read(body)
    except BadField as error:
        refusal = refusal_of(error)
        assert refusal.status == 400
        assert json.loads(refusal.body)["error"]["message"]
    else:
        assert isinstance(asked, Asked)
        call = m.Generate(
            id=1,
            model=asked.model,
            dtype=None,
            tokens=asked.prompt if isinstance(asked.prompt, list) else [1],
            max_tokens=asked.max_tokens or 1,
            sampling=asked.sampling,
            stop_tokens=[],
            stop=list(asked.stop),
        )
        m.client_decoder.decode(m.encoder.encode(call))
        assert asked.max_tokens is None or 1 <= asked.max_tokens <= MAX_TOKENS


@given(_bodies, st.dictionaries(_names, _values, max_size=2))
def test_any_object_is_taken_or_refused(body: dict[str, Any], more: dict[str, Any]) -> None:
    data = json.dumps(body | more).encode()
    check(read_chat, data)
    check(read_text, data)


@given(_values)
@example("\ud800")
@example({"model": "\ud800", "prompt": "\udfff"})
def test_any_json_is_taken_or_refused(value: Any) -> None:
    check(read_chat, json.dumps(value).encode())


@given(st.binary(max_size=60), st.binary(max_size=4), st.integers(0, 80))
def test_any_bytes_are_taken_or_refused(data: bytes, piece: bytes, at: int) -> None:
    whole = b'{"model": "tiny", "messages": [{"role": "user", "content": "\\u00e9"}], "n": 1}'
    check(read_chat, data)
    check(read_chat, whole[:at] + piece + whole[at + len(piece) :])


@given(
    st.lists(
        st.tuples(st.sampled_from([b"host", b"origin", b"authorization"]), st.binary(max_size=20))
    ),
    st.text(max_size=9),
)
def test_any_head_is_served_or_refused(headers: list[tuple[bytes, bytes]], path: str) -> None:
    refusal = Guard("k" * 43).refuse(path, headers)
    assert refusal is None or refusal.status in (401, 403)
