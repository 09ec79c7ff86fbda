"""The door as a process, before a gliad that says what it is told to."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import Struct, structs
from prometheus_client.parser import text_string_to_metric_families

from daemon.config import HttpConfig
from daemon.door_process import open_door
from daemon.paths import Paths
from glia.errors import (
    ConversationBusy,
    EngineDied,
    EngineFailed,
    GliaError,
    PoolExhausted,
    PromptError,
    QuotaExceeded,
)
from glia.local import messages as m
from glia.local import values
from glia.model.tokenizer import Tokenizer
from tests.cli_parts import ANSWER, MODEL_ID, TIP, World
from tests.door_parts import (
    KEY,
    Answer,
    RunningDoor,
    ask,
    num_descriptors,
    num_gliad_connections,
    read_answer,
    resident_bytes,
)
from tests.fake_gliad import FakeGliad
from tests.model_files import write_model
from tests.node_parts import FULL, ROOT, until

TEMPLATE = (
    "{% for m in messages %}<bos>{{ m.role }}\n{{ m.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant\n{% endif %}"
)
CLASS = "native:x"
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
TEXT = {"model": "tiny", "prompt": "Hi"}
CHAT_URL, TEXT_URL = "/v1/chat/completions", "/v1/completions"
MIB = 1024 * 1024


class DoorWorld(World):
    """After `fails_after` tokens, if that is said, an answer breaks off with `fails`."""

    def __init__(self, model_dir: Path) -> None:
        super().__init__(model_dir)
        self.model = structs.replace(self.model, context_tokens=512)
        self.fails_after: int | None = None
        self.fails: GliaError = EngineDied("it died")
        self.counters: dict[str, int] = {}

    def answer(self, call: m.Call) -> Iterable[Struct]:
        if isinstance(call, m.Generate) and self.fails_after is not None:
            for token in self.tokens[: self.fails_after]:
                yield m.Emitted(call.id, [token])
            raise self.fails
        if isinstance(call, m.Status):
            yield self.status(call)
        else:
            yield from super().answer(call)

    def status(self, call: m.Status) -> m.StatusReply:
        tier = values.TierValue(used_bytes=10, cap_bytes=20, windows=3, hits=4, misses=5)
        engine = values.EngineValue(
            "tiny", "float32", "ready", model_id=MODEL_ID.hex(), numerics_class=CLASS
        )
        tiers = {"l0": tier, "l1": tier}
        return m.StatusReply(
            call.id, "0.1", 7, "s", "d", 61.5, tiers, [engine], self.counters, None, self.settings
        )


class Scene:
    """One door and its gliad; each test has a world of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.model_dir = write_model(tmp_path / "model")
        (self.model_dir / "chat_template.jinja").write_text(TEMPLATE)
        self.world = DoorWorld(self.model_dir)
        self.gliad = FakeGliad(tmp_path, lambda call: self.world.answer(call))

    def sent(self) -> m.Generate:
        return [call for call in self.gliad.calls if isinstance(call, m.Generate)][-1]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("door"))
    with scene.gliad:
        yield scene


@pytest.fixture(scope="module")
def _door(scene: Scene) -> Iterator[RunningDoor]:
    with RunningDoor(scene.model_dir.parent, max_requests=4) as running:
        yield running


@pytest.fixture
def door(_door: RunningDoor, scene: Scene) -> RunningDoor:
    scene.world = DoorWorld(scene.model_dir)
    return _door


# -- answers ---------------------------------------------------------------------------------


def test_a_chat_at_once(door: RunningDoor, scene: Scene) -> None:
    said = door.ask(CHAT_URL, CHAT)
    assert said.status == 200
    assert said.headers["content-type"] == "application/json"
    assert said.headers["content-length"] == str(len(said.body))
    body = said.json
    assert re.fullmatch(r"chatcmpl-[0-9a-f]{24}", body.pop("id"))
    assert abs(body.pop("created") - time.time()) < 60
    num_prompt = len(scene.sent().tokens)
    assert body == {
        "object": "chat.completion",
        "model": "tiny",
        "system_fingerprint": f"{CLASS}.{MODEL_ID.hex()[:12]}",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": ANSWER, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": 14,
            "total_tokens": num_prompt + 14,
            "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
        },
        "glia": {
            "cached": {"l0": 16, "l1": 0, "l2": 0, "peers": 0},
            "computed": num_prompt - 16,
            "tip": TIP.hex(),
            "conversation": "@00000001",
            "ttft_ms": 112.5,
            "exact": True,
            "numerics_class": "",
            "warning": None,
        },
    }


def test_what_gliad_is_asked(door: RunningDoor, scene: Scene) -> None:
    door.ask(CHAT_URL, {**CHAT, "temperature": 0, "top_p": 0.5, "seed": 3, "stop": ["zz"]})
    call = scene.sent()
    assert bytes(t for t in call.tokens if t < 256).decode("latin-1").count("user") == 0
    assert (call.model, call.dtype) == ("tiny", None)
    assert call.turn is not None
    assert (call.turn.conversation, call.turn.keep) == ("", 0)
    (told,) = call.turn.messages
    assert (told.role, told.content) == ("user", None)  # its tokens say it
    assert Tokenizer.load(scene.model_dir).decode(call.tokens[told.start : told.end]) == "Hi"
    assert call.sampling == values.SamplingValue(0.0, 0.5, 0, 3)
    assert (call.stop, call.stop_tokens, call.ignore_eos) == (["zz"], [258], False)
    assert call.max_tokens == 512 - len(call.tokens)
    door.ask(TEXT_URL, {**TEXT, "prompt": [1, 2, 3], "max_tokens": 5})
    call = scene.sent()
    assert (call.tokens, call.max_tokens, call.turn) == ([1, 2, 3], 5, None)


def test_canonical_is_asked_for_in_float64(door: RunningDoor, scene: Scene) -> None:
    door.ask(CHAT_URL, {**CHAT, "glia": {"numerics": "canonical"}})
    assert scene.sent().dtype == "float64"


def test_a_text_at_once(door: RunningDoor, scene: Scene) -> None:
    body = door.ask(TEXT_URL, TEXT).json
    assert re.fullmatch(r"cmpl-[0-9a-f]{24}", body["id"])
    assert body["object"] == "text_completion"
    (choice,) = body["choices"]
    assert choice == {"index": 0, "text": ANSWER, "logprobs": None, "finish_reason": "stop"}
    assert scene.sent().tokens[0] == 257  # the model's own rule puts <bos> before a text


def test_a_chat_as_it_comes(door: RunningDoor) -> None:
    said = door.ask(CHAT_URL, {**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    assert said.headers["content-type"] == "text/event-stream; charset=utf-8"
    first, *pieces, last, usage, done = said.events
    assert done == "[DONE]"
    heads = [{k: e[k] for k in ("id", "created", "model")} for e in said.events[:-1]]
    assert all(head == heads[0] for head in heads)
    assert {e["object"] for e in said.events[:-1]} == {"chat.completion.chunk"}
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert "".join(e["choices"][0]["delta"]["content"] for e in pieces) == ANSWER
    assert len(pieces) == 12  # a character of two tokens comes whole
    assert last["choices"][0] == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop",
    }  # fmt: skip
    assert all(e["usage"] is None and "glia" not in e for e in (first, *pieces, last))
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == 16
    assert usage["glia"]["conversation"] == "@00000001"


def test_without_being_asked_a_stream_has_no_counts(door: RunningDoor) -> None:
    *events, done = door.ask(CHAT_URL, {**CHAT, "stream": True}).events
    assert done == "[DONE]"
    assert not any("usage" in event for event in events)
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_text_as_it_comes(door: RunningDoor) -> None:
    *events, last, done = door.ask(TEXT_URL, {**TEXT, "stream": True}).events
    assert "".join(event["choices"][0]["text"] for event in events) == ANSWER
    assert (last["choices"][0]["text"], last["choices"][0]["finish_reason"]) == ("", "stop")
    assert done == "[DONE]"


@pytest.mark.parametrize(
    ("stop", "text"), [("Or", "Paris. "), ("s. O", "Pari"), ("é?", ANSWER[:10]), ("?x", ANSWER)]
)
def test_nothing_of_a_stop_string_is_said(door: RunningDoor, stop: str, text: str) -> None:
    asked = {**CHAT, "stop": stop}
    assert door.ask(CHAT_URL, asked).json["choices"][0]["message"]["content"] == text
    *events, _, _ = door.ask(CHAT_URL, {**asked, "stream": True}).events
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == text


def test_models(door: RunningDoor) -> None:
    tiny = {
        "id": "tiny", "object": "model", "created": 0, "owned_by": "local", "context_length": 512,
    }  # fmt: skip
    assert door.ask("/v1/models").json == {"data": [tiny], "object": "list"}
    assert door.ask("/v1/models/tiny").json == tiny
    missing = door.ask("/v1/models/gpt-5")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")


def test_health_says_nothing(door: RunningDoor) -> None:
    said = ask(door.address, "/health")
    assert (said.status, said.json) == (200, {"status": "ok"})


# -- conversations ---------------------------------------------------------------------------


def chat_in(door: RunningDoor, name: str, *texts: str, **headers: str) -> Answer:
    roles = ("user", "assistant")
    said = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    asked = {**CHAT, "messages": said}
    return door.ask(CHAT_URL, asked if headers else {**asked, "conversation": name}, **headers)


def test_a_named_conversation_goes_on_with_its_log(door: RunningDoor, scene: Scene) -> None:
    assert chat_in(door, "trip", "Hi").json["glia"]["conversation"] == "trip"
    assert scene.sent().turn is not None
    assert scene.sent().turn.create is True
    log = [*scene.sent().tokens, *scene.world.tokens]
    said = chat_in(door, "trip", "Hi", ANSWER, "More", glia_conversation="trip")
    assert said.json["glia"]["conversation"] == "trip"
    call = scene.sent()
    assert call.tokens[: len(log)] == log
    assert call.turn is not None
    assert (call.turn.conversation, call.turn.keep) == ("trip", len(log))
    assert call.turn.create is False
    (told,) = call.turn.messages
    assert (told.role, told.content) == ("user", None)  # its tokens say it
    assert call.tokens[told.start : told.end] == Tokenizer.load(scene.world.model.source).encode(
        "More"
    )
    kept = scene.world.conversations.kept["trip"].messages
    assert [told.role for told in kept] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize(
    ("texts", "field"),
    [
        (("Ho", ANSWER, "More"), "messages[0]"),
        (("Hi", "London.", "More"), "messages[1]"),
        (("Hi", ANSWER), "messages"),
        (("Hi",), "messages"),
    ],
)
def test_messages_must_go_on_with_it(
    door: RunningDoor, scene: Scene, texts: tuple[str, ...], field: str
) -> None:
    chat_in(door, "trip", "Hi")
    refused = chat_in(door, "trip", *texts)
    assert refused.status == 400
    assert (refused.error["param"], refused.error["code"]) == (field, "conversation_differs")
    assert len(scene.world.conversations.kept["trip"].messages) == 2


def test_a_message_of_another_role_is_another_message(door: RunningDoor) -> None:
    chat_in(door, "trip", "Hi")
    said = [{"role": "system", "content": "Hi"}, {"role": "assistant", "content": ANSWER}]
    asked = {**CHAT, "conversation": "trip", "messages": [*said, *CHAT["messages"]]}
    assert door.ask(CHAT_URL, asked).error["param"] == "messages[0]"


def test_an_answer_is_known_again_as_far_as_it_was_told(door: RunningDoor) -> None:
    asked = {**CHAT, "conversation": "trip", "stop": "Or"}
    told = door.ask(CHAT_URL, asked).json["choices"][0]["message"]["content"]
    messages = [
        *CHAT["messages"], {"role": "assistant", "content": told},
        {"role": "user", "content": "More"},
    ]  # fmt: skip
    assert told == "Paris. "
    assert door.ask(CHAT_URL, {**asked, "messages": messages}).status == 200


def test_texts_are_of_no_conversation(door: RunningDoor) -> None:
    refused = door.ask(TEXT_URL, {**TEXT, "conversation": "trip"})
    assert (refused.status, refused.error["param"]) == (400, "conversation")


# -- what goes wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (PromptError("it is too long"), 400, "prompt"),
        (QuotaExceeded("too many"), 429, "rate_limit_exceeded"),
        (ConversationBusy("it is answered in"), 429, "conversation_busy"),
        (PoolExhausted("full"), 503, "pool_exhausted"),
        (EngineDied("it died"), 503, "engine_died"),
        (EngineFailed("assert at secret.py"), 500, "internal"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_first_token_are_statuses(
    door: RunningDoor, scene: Scene, error: GliaError, status: int, code: str, stream: bool
) -> None:
    scene.world.fails_after, scene.world.fails = 0, error
    refused = door.ask(CHAT_URL, {**CHAT, "stream": stream})
    assert (refused.status, refused.error["code"]) == (status, code)
    assert ("retry-after" in refused.headers) == (status in (429, 503))
    assert "secret" not in refused.body.decode()


def test_errors_amid_a_stream_are_its_last_event(door: RunningDoor, scene: Scene) -> None:
    scene.world.fails_after = 3
    _, *pieces, error = door.ask(CHAT_URL, {**CHAT, "stream": True}).events
    assert "".join(event["choices"][0]["delta"]["content"] for event in pieces) == ANSWER[:3]
    assert error["error"]["code"] == "engine_died"
    refused = door.ask(CHAT_URL, CHAT)
    assert (refused.status, refused.error["code"]) == (503, "engine_died")


@pytest.mark.parametrize(
    ("path", "body", "status", "param", "code"),
    [
        (CHAT_URL, {**CHAT, "model": "gpt-5"}, 404, None, "model_not_found"),
        (CHAT_URL, {**CHAT, "tools": [1]}, 400, "tools", "unsupported_parameter"),
        (CHAT_URL, {**CHAT, "messages": 5}, 400, "messages", "invalid_type"),
        (CHAT_URL, b"{", 400, None, "invalid_json"),
        (CHAT_URL, b"", 400, None, "invalid_json"),
        (TEXT_URL, {**TEXT, "prompt": []}, 400, "prompt", "invalid_value"),
        (TEXT_URL, {**TEXT, "prompt": [259]}, 400, "prompt", "invalid_value"),
        (TEXT_URL, {**TEXT, "prompt": "a" * 511}, 400, "prompt", "context_length_exceeded"),
        ("/v1/embeddings", {"input": "x"}, 404, None, "unknown_url"),
        ("/v1/models", {}, 405, None, "method_not_allowed"),
        (CHAT_URL, None, 405, None, "method_not_allowed"),
        ("/%ff", None, 404, None, "unknown_url"),
        ("/metrics/", None, 404, None, "unknown_url"),
        (f"{CHAT_URL}/", CHAT, 404, None, "unknown_url"),
    ],
)
def test_bad_requests(
    door: RunningDoor, path: str, body: Any, status: int, param: str | None, code: str
) -> None:
    refused = door.ask(path, body)
    assert (refused.status, refused.error["param"]) == (status, param)
    assert refused.error["code"] == code
    assert refused.headers["x-should-retry"] == "false"


def test_a_chat_needs_a_template(door: RunningDoor, scene: Scene, tmp_path: Path) -> None:
    bare = write_model(tmp_path / "bare")
    model = structs.replace(scene.world.model, source=str(bare), files_dir=str(bare))
    scene.world.model = model
    refused = door.ask(CHAT_URL, CHAT)
    assert (refused.status, refused.error["param"]) == (400, "model")
    assert door.ask(TEXT_URL, TEXT).status == 200


def test_a_tokenizer_that_was_replaced_is_read_anew(
    door: RunningDoor, scene: Scene, tmp_path: Path
) -> None:
    copy = write_model(tmp_path / "copy")
    model = structs.replace(scene.world.model, source=str(copy), files_dir=str(copy))
    scene.world.model = model
    assert door.ask(CHAT_URL, CHAT).status == 400
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert door.ask(CHAT_URL, CHAT).status == 200
    assert scene.sent().tokens == [39, 72]  # "Hi"


# -- metrics ---------------------------------------------------------------------------------


def test_metrics(door: RunningDoor, scene: Scene) -> None:
    scene.world.counters = {
        "prompt_tokens": 15, "cached_l0_tokens": 1, "cached_l1_tokens": 2, "cached_l2_tokens": 4,
        "cached_peers_tokens": 0, "computed_tokens": 8, "completion_tokens": 7, "requests": 6,
        "requests_answered": 3, "requests_failed": 2, "requests_cancelled": 1, "half_open": 9,
        "announce_backlog": 3, "chains_scarce": 2,
    }  # fmt: skip
    door.ask(CHAT_URL, CHAT)
    said = door.ask("/metrics")
    assert said.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(said.body.decode())
        for sample in family.samples
    }
    sources = {key[1]: n for key, n in samples.items() if key[0] == "glia_prompt_tokens_total"}
    assert sources == {"l0": 1, "l1": 2, "l2": 4, "peers": 0, "computed": 8}
    outcomes = {key[1]: n for key, n in samples.items() if key[0] == "glia_requests_total"}
    assert outcomes == {"answered": 3, "failed": 2, "cancelled": 1}
    events = {key[1]: n for key, n in samples.items() if key[0] == "glia_events_total"}
    assert events == {"half_open": 9}
    assert (samples["glia_announce_backlog",], samples["glia_chains_scarce",]) == (3, 2)
    assert samples["glia_tier_bytes", "l0"] == 10
    assert samples["glia_tier_cap_bytes", "l1"] == 20
    assert samples["glia_tier_hits_total", "l1"] == 4
    assert samples["glia_engine_state", "float32", "tiny", "ready"] == 1
    assert samples["glia_engine_state", "float32", "tiny", "failed"] == 0
    assert samples["glia_completion_tokens_total",] == 7
    assert samples["glia_http_requests_total", "chat", "200"] >= 1
    assert samples["glia_http_ttft_seconds_bucket", "0.25"] >= 1
    assert samples["glia_http_ttft_seconds_bucket", "0.1"] == 0


# -- who may ask -----------------------------------------------------------------------------


@pytest.mark.fault("F35")
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/nowhere", "/v1/models/tiny"])
def test_without_the_key_nothing_is_told(door: RunningDoor, path: str) -> None:
    none = ask(door.address, path)
    wrong = door.ask(path, authorization=f"Bearer {KEY[:-1]}x")
    for refused in (none, wrong):
        assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert (none.body, {**none.headers, "date": ""}) == (wrong.body, {**wrong.headers, "date": ""})


@pytest.mark.fault("F35")
def test_web_pages_of_other_sites_reach_nothing(door: RunningDoor, scene: Scene) -> None:
    num_calls = len(scene.gliad.calls)
    for headers, code in (
        ({"host": "evil.example"}, "forbidden_host"),
        ({"origin": "http://evil.example"}, "forbidden_origin"),
    ):
        for path, body in (("/health", None), (CHAT_URL, CHAT)):
            refused = door.ask(path, body, **headers)
            assert (refused.status, refused.error["code"]) == (403, code)
            assert not [name for name in refused.headers if name.startswith("access-control")]
    assert len(scene.gliad.calls) == num_calls
    allowed = door.ask("/v1/models", origin="http://localhost:3000")
    assert allowed.status == 200
    assert not [name for name in allowed.headers if name.startswith("access-control")]


def test_where_no_key_is_asked_for_none_is_needed(scene: Scene, door: RunningDoor) -> None:
    with RunningDoor(scene.model_dir.parent, key="") as running:
        assert ask(running.address, "/v1/models").status == 200
        assert ask(running.address, "/v1/models", host="evil.example").status == 403


# -- limits ----------------------------------------------------------------------------------


def test_more_requests_than_may_be_are_refused(door: RunningDoor, scene: Scene) -> None:
    go_on = threading.Event()

    def answer(call: m.Call) -> Iterable[Struct]:
        assert go_on.wait(30)
        return DoorWorld.answer(scene.world, call)

    scene.world.answer = answer  # type: ignore[method-assign]
    pid = door.process.pid
    until(lambda: num_gliad_connections(pid) == 0)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(door.ask, CHAT_URL, CHAT) for _ in range(4)]
        try:
            until(lambda: num_gliad_connections(pid) == 4)
            refused = door.ask(CHAT_URL, CHAT)
            assert (refused.status, refused.error["code"]) == (503, "too_many_requests")
            assert refused.headers["retry-after"] == "1"
            assert ask(door.address, "/health").status == 200
            assert ask(door.address, "/nowhere").status == 401
        finally:
            go_on.set()
        assert [answer.result().status for answer in answers] == [200] * 4
    assert door.ask("/nowhere").status == 404


def test_a_body_over_its_bound_is_refused(door: RunningDoor) -> None:
    for size, status in ((4 * MIB, 400), (4 * MIB + 1, 413), (20 * MIB, 413)):
        refused = door.ask(CHAT_URL, b" " * size)
        assert refused.status == status
        assert refused.error["code"] == ("body_too_large" if status == 413 else "invalid_json")
    assert door.ask("/v1/models", b" " * MIB).status == 405
    assert ask(door.address, CHAT_URL, b" " * MIB).status == 401


def test_a_body_in_chunks_is_bounded_too(door: RunningDoor) -> None:
    with door.connect() as sock:
        head = f"POST {CHAT_URL} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        sock.sendall(f"{head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode())
        for _ in range(5):
            sock.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
        sock.sendall(b"0\r\n\r\n")
        assert read_answer(sock).error["code"] == "body_too_large"


def test_a_head_over_its_bound_is_refused(door: RunningDoor) -> None:
    assert door.ask("/v1/models", x="a" * 20_000).status == 200
    with door.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60_000)
        assert sock.recv(100).startswith(b"HTTP/1.1 431 ")


@pytest.mark.fault("F10")
@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 500,  # TLS
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9) + b"garbage" * 99,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000") * 50,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nConnection: Upgrade\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: \xff\xff\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_what_is_no_http_harms_nobody(door: RunningDoor, data: bytes) -> None:
    said = b""
    with door.connect() as sock, contextlib.suppress(ConnectionResetError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while piece := sock.recv(65536):
            said += piece
    assert b" 200" not in said
    assert ask(door.address, "/health").status == 200


@pytest.mark.fault("F10")
def test_malformed_requests_in_numbers_harm_nobody(door: RunningDoor) -> None:
    """Requests with bytes changed, cut or put in leave no trace."""
    random = Random(10)
    body = json.dumps(CHAT).encode()
    head = f"POST {CHAT_URL} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    good = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    statuses = Counter[bytes]()
    before = size = resident_bytes(door.process.pid)
    for number in range(10_000 if FULL else 250):
        data = bytearray(good)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data))
            data[at : at + random.randint(0, 2)] = random.randbytes(random.randint(0, 2))
        with door.connect() as sock, contextlib.suppress(ConnectionResetError):
            sock.sendall(data[: random.choice((len(data), random.randrange(len(data))))])
            sock.shutdown(socket.SHUT_WR)
            statuses[sock.recv(12)] += 1
        if number == 50:
            before = resident_bytes(door.process.pid)
        size = resident_bytes(door.process.pid)
    print(f"F10 resident_bytes {size - before} {16 * MIB} ", end="")
    assert size - before < 16 * MIB
    assert not [status for status in statuses if status.startswith(b"HTTP/1.1 5")]
    assert {b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 404"} <= set(statuses)
    assert door.ask(CHAT_URL, CHAT).status == 200


def test_silent_connections_give_way(door: RunningDoor) -> None:
    before = num_descriptors(door.process.pid)
    with ExitStack() as stack:
        silent = [stack.enter_context(door.connect()) for _ in range(4 + 64 + 20)]
        for sock in silent[::2]:
            sock.sendall(b"GET / HT")
        assert ask(door.address, "/health").status == 200
        assert num_descriptors(door.process.pid) <= before + 4 + 64 + 2
        assert silent[0].recv(1) == b""
        assert silent[-1].send(b"x") == 1


def test_connections_are_kept_for_the_next_request(door: RunningDoor) -> None:
    head = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n"
    with door.connect() as sock:
        for _ in range(3):
            sock.sendall(head.encode())
            data = b""
            while not data.endswith(b'"list"}'):
                data += sock.recv(65536)
            assert data.startswith(b"HTTP/1.1 200")


# -- the end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", KEY[:20].encode()])
def test_a_door_that_was_not_told_its_key_serves_nobody(tmp_path: Path, said: bytes) -> None:
    door = open_door(HttpConfig("127.0.0.1:0", require_key=False), Paths(tmp_path))
    assert door is not None
    with contextlib.closing(door):
        ended = subprocess.run(
            door.argv, cwd=ROOT, input=said, pass_fds=(door.listen_fd,), check=False, timeout=60
        )
    assert ended.returncode == 1


def test_the_log_has_counts_and_nothing_that_was_said(scene: Scene, door: RunningDoor) -> None:
    with RunningDoor(scene.model_dir.parent) as running:
        words = "xylophone"
        running.ask(CHAT_URL, {**CHAT, "messages": [{"role": "user", "content": words}]})
        running.ask(CHAT_URL, {**CHAT, "model": words})
        running.ask(f"/{words}?{words}", {words: words}, **{words: words})
        running.ask(CHAT_URL, f'{{"{words}": 5}}'.encode())
        running.ask("/v1/models", authorization=words)
        running.ask(f"/v1/models/{words}")
        said = running.end()
    assert running.process.returncode == 0
    assert words not in said
    assert "Paris" not in said
    lines = [re.sub(r"\d+ ms", "N ms", line) for line in said.splitlines()]
    assert lines[0].startswith("chat 200 N ms tiny: prompt ")
    assert lines[1:] == [
        "chat 404 N ms", "other 404 N ms", "chat 400 N ms", "other 401 N ms", "model 404 N ms",
    ]  # fmt: skip


def test_without_a_gliad_it_says_so_and_goes_on(tmp_path: Path) -> None:
    with RunningDoor(tmp_path) as running:
        for _ in range(2):
            refused = running.ask(CHAT_URL, CHAT)
            assert (refused.status, refused.error["code"]) == (503, "not_running")
        assert ask(running.address, "/health").status == 200
        running.end()
