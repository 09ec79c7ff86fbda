"""The official openai client, unmodified, against a real node with a real engine."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from glia.client import Client
from glia.model.tokenizer import Tokenizer
from tests.chat_parts import exported, piped, roles, save_chat_model
from tests.door_parts import ask, listens, num_gliad_connections
from tests.gliad_parts import OFFLINE
from tests.node_parts import RunningNode, until
from tests.tiny_node import SETTINGS, add_manifest, engine_of, gliad, pid_of, refused

HTTP = {**SETTINGS, "http": {"listen": "127.0.0.1:0", "max_requests": 16}}
TIERS = ("l0", "l1", "l2", "peers")
LONG = "Grüße, 😀! " * 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("door") / "model")


@pytest.fixture(scope="module")
def node(model: Path) -> Iterator[RunningNode]:
    """One for all: each test leaves it running."""
    with RunningNode(model.parent / "node", HTTP) as running:
        add_manifest(running, model)
        yield running


@pytest.fixture(scope="module")
def api(node: RunningNode) -> Iterator[openai.OpenAI]:
    with connect(node) as client:
        yield client


def connect(node: RunningNode) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url_of(node)}/v1", api_key=key_of(node), max_retries=0)


def url_of(node: RunningNode) -> str:
    with Client.connect(node.data_dir) as client:
        found = client.status().http
    assert found is not None
    return found


def key_of(node: RunningNode) -> str:
    return (node.data_dir / "http.key").read_text().strip()


def address_of(node: RunningNode) -> tuple[str, int]:
    host, _, port = url_of(node).removeprefix("http://").rpartition(":")
    return host, int(port)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def greedy(num_tokens: int = 24, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": num_tokens, "temperature": 0, **more}


def metrics(node: RunningNode) -> dict[tuple[str, ...], float]:
    said = ask(address_of(node), "/metrics", authorization=f"Bearer {key_of(node)}")
    assert said.status == 200
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(said.body.decode())
        for sample in family.samples
    }


def door_pid(gliad_pid: int) -> int:
    """The door that a gliad started, 0 where there is none."""
    for path in Path(f"/proc/{gliad_pid}/task").glob("*/children"):
        for pid in path.read_text().split():
            if b"daemon.door" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return 0


# -- what is answered ------------------------------------------------------------------------


@pytest.mark.spec(68)
def test_a_chat_goes_on_from_what_is_cached(api: openai.OpenAI, node: RunningNode) -> None:
    asked = f"The first. {LONG}"
    first = api.chat.completions.create(messages=user(asked), **greedy())
    assert first.object == "chat.completion"
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert (first.choices[0].finish_reason, first.usage.completion_tokens) == ("length", 24)
    text = first.choices[0].message.content
    assert len(text) == 24
    said = [*user(asked), {"role": "assistant", "content": text}, *user("And then?")]
    second = api.chat.completions.create(messages=said, **greedy())
    known = first.usage.prompt_tokens + 24 - 16
    assert second.usage.prompt_tokens_details.cached_tokens >= known // 16 * 16
    again = api.chat.completions.create(messages=said, **greedy())
    assert again.choices[0].message.content == second.choices[0].message.content
    assert again.id != second.id
    engine = engine_of(node.client())
    assert engine is not None
    assert engine.model_id is not None
    assert second.system_fingerprint == f"{engine.numerics_class}.{engine.model_id[:12]}"


@pytest.mark.spec(68)
def test_texts_and_tokens_are_continued(api: openai.OpenAI, model: Path) -> None:
    whole = api.completions.create(prompt=LONG, **greedy())
    assert whole.choices[0].finish_reason == "length"
    tokens = Tokenizer.load(model).encode(LONG, special=True)
    same = api.completions.create(prompt=tokens, **greedy())
    assert same.choices[0].text == whole.choices[0].text
    assert same.usage is not None
    assert same.usage.prompt_tokens_details is not None
    assert same.usage.prompt_tokens_details.cached_tokens == (len(tokens) - 1) // 16 * 16
    stream = api.completions.create(prompt=LONG, stream=True, **greedy())
    assert "".join(part.choices[0].text for part in stream) == whole.choices[0].text


@pytest.mark.spec(68)
def test_a_stream_says_what_comes_at_once(api: openai.OpenAI) -> None:
    whole = api.chat.completions.create(messages=user(LONG), **greedy())
    options = {"include_usage": True}
    asked = greedy(stream=True, stream_options=options)
    *parts, last, usage = api.chat.completions.create(messages=user(LONG), **asked)
    texts = [part.choices[0].delta.content or "" for part in parts]
    assert "".join(texts) == whole.choices[0].message.content
    assert len(texts) > 20
    assert last.choices[0].finish_reason == "length"
    assert usage.choices == []
    assert usage.usage.total_tokens == whole.usage.total_tokens
    assert usage.usage.prompt_tokens_details.cached_tokens > 0


def test_sampling_is_repeated_by_its_seed(api: openai.OpenAI) -> None:
    def answer(**more: Any) -> str:
        asked = {"model": "tiny", "max_tokens": 24, "messages": user("Hi"), **more}
        return str(api.chat.completions.create(**asked).choices[0].message.content)

    assert answer(seed=7) == answer(seed=7)
    assert answer(seed=7, temperature=0) != answer(seed=7)
    assert len({answer() for _ in range(4)}) == 4


def test_a_stop_string_over_several_tokens_ends_an_answer(api: openai.OpenAI) -> None:
    text = api.chat.completions.create(messages=user("Hi"), **greedy()).choices[0].message.content
    stop = text[10:13]
    expected = text[: text.index(stop)]
    asked = greedy(stop=[stop], messages=user("Hi"))
    said = api.chat.completions.create(**asked)
    assert (said.choices[0].message.content, said.choices[0].finish_reason) == (expected, "stop")
    *parts, last = api.chat.completions.create(stream=True, **asked)
    assert "".join(part.choices[0].delta.content or "" for part in parts) == expected
    assert last.choices[0].finish_reason == "stop"


def test_streams_at_once_do_not_mix(node: RunningNode, api: openai.OpenAI) -> None:
    texts = [f"{n} {LONG}" for n in range(6)]

    def stream(text: str) -> str:
        with connect(node) as own:
            parts = own.chat.completions.create(messages=user(text), stream=True, **greedy(40))
            return "".join(part.choices[0].delta.content or "" for part in parts)

    with ThreadPoolExecutor(len(texts)) as pool:
        streamed = list(pool.map(stream, texts))
    for text, said in zip(texts, streamed, strict=True):
        whole = api.chat.completions.create(messages=user(text), **greedy(40))
        assert whole.choices[0].message.content == said
    assert len(set(streamed)) == len(texts)


def test_models_and_errors_are_the_clients_own(api: openai.OpenAI, node: RunningNode) -> None:
    assert [model.id for model in api.models.list()] == ["tiny"]
    assert api.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError) as missing:
        api.chat.completions.create(model="gpt-5", messages=user("Hi"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as unsupported:
        api.chat.completions.create(messages=user("Hi"), **greedy(n=2))
    assert (unsupported.value.code, unsupported.value.param) == ("unsupported_parameter", "n")
    with pytest.raises(openai.BadRequestError) as long:
        api.completions.create(prompt="a" * 5000, **greedy())
    assert long.value.code == "context_length_exceeded"
    with (
        openai.OpenAI(base_url=f"{url_of(node)}/v1", api_key="wrong") as stranger,
        pytest.raises(openai.AuthenticationError) as refusal,
    ):
        stranger.models.list()
    assert refusal.value.code == "invalid_api_key"


# -- what is counted -------------------------------------------------------------------------


@pytest.mark.spec(70)
def test_counts_by_tier_add_up_everywhere(api: openai.OpenAI, node: RunningNode) -> None:
    client = node.client()
    before = metrics(node)
    replies = []
    for evicted in ((), (), ("l0",), ("l0", "l1")):
        for tier in evicted:
            client.evict(tier)
        asked = greedy(8, messages=user(f"Count this. {LONG}"))
        replies.append(api.chat.completions.create(**asked))
    after = metrics(node)
    sources = [
        next((tier for tier in TIERS if reply.glia["cached"][tier]), "computed")
        for reply in replies
    ]
    assert sources == ["computed", "l0", "l1", "l2"]
    told = dict.fromkeys((*TIERS, "computed"), 0)
    for reply in replies:
        cached, computed = reply.glia["cached"], reply.glia["computed"]
        assert sum(cached.values()) == reply.usage.prompt_tokens_details.cached_tokens
        assert sum(cached.values()) + computed == reply.usage.prompt_tokens
        for source, num in {**cached, "computed": computed}.items():
            told[source] += num
    for run, reply in zip(reversed(client.runs()[:4]), replies, strict=True):
        assert {tier: getattr(run.cached, tier) for tier in TIERS} == reply.glia["cached"]
        assert run.computed == reply.glia["computed"]
    name = "glia_prompt_tokens_total"
    counted = {source: after[name, source] - before[name, source] for source in told}
    assert counted == told
    assert sum(counted.values()) == sum(reply.usage.prompt_tokens for reply in replies)
    for key, num in (
        (("glia_requests_total", "answered"), 4),
        (("glia_http_requests_total", "chat", "200"), 4),
        (("glia_http_ttft_seconds_count",), 4),
        (("glia_completion_tokens_total",), 32),
    ):
        assert after[key] - before.get(key, 0) == num


# -- conversations ---------------------------------------------------------------------------


def test_a_named_conversation_is_the_same_as_anywhere(
    api: openai.OpenAI, node: RunningNode
) -> None:
    asked = greedy(extra_body={"conversation": "trip"})
    first = api.chat.completions.create(messages=user("Where to?"), **asked)
    said = [
        *user("Where to?"), {"role": "assistant", "content": first.choices[0].message.content},
        *user("And then?"),
    ]  # fmt: skip
    second = api.chat.completions.create(messages=said, **asked)
    assert second.glia["conversation"] == "trip"
    found = exported(node, "trip")
    assert roles(found) == ["user", "assistant"] * 2
    assert piped(node, "Why?\n", "chat", "tiny", "--conversation", "trip").returncode == 0
    assert roles(exported(node, "trip")) == ["user", "assistant"] * 3
    with pytest.raises(openai.BadRequestError) as differs:
        api.chat.completions.create(messages=user("Where else?"), **asked)
    assert differs.value.code == "conversation_differs"


def test_without_a_name_it_is_anonymous(api: openai.OpenAI, node: RunningNode) -> None:
    reply = api.chat.completions.create(messages=user("Hi"), **greedy(4))
    name = reply.glia["conversation"]
    assert name.startswith("@")
    about = node.client().conversation(name).about
    assert (about.anonymous, about.num_tokens) == (True, reply.usage.total_tokens)
    assert about.num_messages == 2


def test_what_is_not_named_is_shown_with_who_said_it(api: openai.OpenAI, node: RunningNode) -> None:
    said = [{"role": "system", "content": "Be brief."}, *user("  Hi there, all of you  ")]
    name = api.chat.completions.create(messages=said, **greedy(30)).glia["conversation"]
    assert roles(exported(node, name)) == ["system", "user", "assistant"]
    text = piped(node, "", "export", name).stdout
    assert text.startswith("system:\nBe brief.\n\nuser:\n  Hi there, all of you  \n\nassistant:\n")
    rows = piped(node, "", "conversations", "--all").stdout.splitlines()
    assert [row.split()[2] for row in rows if row.startswith(name)] == ["3"]
    assert "Hi there, all of you" in piped(node, "", "recall", name).stdout
    said += [{"role": "assistant", "content": "So?"}, *user("More")]
    name = api.chat.completions.create(messages=said, **greedy(4)).glia["conversation"]
    assert roles(exported(node, name)) == ["system", "user", "assistant", "user", "assistant"]


# -- who may have it -------------------------------------------------------------------------


def labels(node: RunningNode, name: str) -> list[str]:
    return [said.visibility for said in node.client().conversation(name).messages]


def test_what_is_said_is_labelled_and_only_ever_stricter(
    api: openai.OpenAI, node: RunningNode
) -> None:
    """With the unmodified client; private unless it is said otherwise."""
    said = [{"role": "system", "content": "Be brief."}, *user("Hi")]
    for glia, expected in (
        (None, ["private"] * 3),
        ({"visibility": "public"}, ["public"] * 3),
        ({"system_visibility": "public"}, ["public", "private", "private"]),
        ({"system_visibility": "private"}, ["private"] * 3),
    ):
        asked = greedy(4, extra_body={"glia": glia})
        name = api.chat.completions.create(messages=said, **asked).glia["conversation"]
        assert labels(node, name) == expected
    with pytest.raises(openai.BadRequestError) as refused:
        api.chat.completions.create(messages=user("Hi"), **greedy(4, extra_body={"glia": {"a": 1}}))
    assert (refused.value.code, refused.value.param) == ("unknown_parameter", "glia.a")

    name = "labelled"
    for at, visibility in enumerate(("public", "private", "public")):
        body = {"conversation": name, "glia": {"visibility": visibility}}
        if at:
            log = node.client().conversation(name)
            had = exported(node, name)["messages"]
            said = [{"role": m["role"], "content": m["content"]} for m in had]
            assert len(log.messages) == len(said)
        said = [*said, *user(f"Again {at}")] if at else user("Hi")
        api.chat.completions.create(messages=said, **greedy(4, extra_body=body))
    assert labels(node, name) == ["public"] * 2 + ["private"] * 4


def test_a_public_text_is_one(api: openai.OpenAI, node: RunningNode) -> None:
    for body, expected in (
        (None, ["private"]),
        ({"glia": {"visibility": "public"}}, ["public"] * 2),
    ):
        reply = api.completions.create(prompt="Once upon", **greedy(4, extra_body=body))
        assert labels(node, reply.glia["conversation"]) == expected


# -- who goes away ---------------------------------------------------------------------------


def is_idle(client: Client) -> bool:
    engine = engine_of(client)
    return engine is not None and engine.state == "ready" and engine.num_running == 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_run(
    node: RunningNode, api: openai.OpenAI, stream: bool
) -> None:
    client = node.client()
    pid = door_pid(node.process.pid)
    api.chat.completions.create(messages=user("Hi"), **greedy(1))  # so that its engine is there
    until(lambda: is_idle(client))
    asked = greedy(3000, messages=user("Hi"), extra_body={"conversation": f"broken-{stream}"})
    if stream:
        with api.chat.completions.create(stream=True, **asked) as parts:
            until_told = iter(parts)
            for _ in range(4):
                next(until_told)
    else:
        with pytest.raises(openai.APITimeoutError):
            api.with_options(timeout=1.0).chat.completions.create(**asked)
    until(lambda: client.runs()[0].state == "cancelled")
    until(lambda: is_idle(client))
    kept = client.conversation(f"broken-{stream}")
    assert [said.role for said in kept.messages] == ["user", "assistant"]
    assert kept.messages[1].end - kept.messages[1].start == client.runs()[0].completion_tokens
    assert 0 < client.runs()[0].completion_tokens < 3000
    until(lambda: num_gliad_connections(pid) == 0)
    told = "200" if stream else "gone"
    until(lambda: re.search(rf"chat {told} \d+ ms tiny: .* cancelled", node.log) is not None)


def test_an_engine_that_dies_is_told_and_comes_back(node: RunningNode, api: openai.OpenAI) -> None:
    client = node.client()
    asked = greedy(3000, messages=user("Hi"), stream=True)
    parts = iter(api.chat.completions.create(**asked))
    next(parts)
    os.kill(pid_of(client), signal.SIGKILL)
    with pytest.raises(openai.APIError, match="engine of tiny") as died:
        list(parts)
    assert died.value.code == "engine_died"
    assert api.chat.completions.create(messages=user("Hi"), **greedy(4)).usage is not None


@pytest.mark.spec(47)
def test_a_door_that_crashes_is_started_again(node: RunningNode, api: openai.OpenAI) -> None:
    pid = door_pid(node.process.pid)
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: door_pid(node.process.pid) not in (0, pid))
    assert [model.id for model in connect(node).models.list()] == ["tiny"]
    assert node.client().status().counters["http_restarts"] == 1
    assert "the HTTP door ended by SIGKILL" in node.log
    addresses = listens(door_pid(node.process.pid))
    assert addresses
    assert all(address.startswith("0100007F:") for address in addresses)


# -- the node's side -------------------------------------------------------------------------


@pytest.mark.spec(47)
def test_without_the_setting_there_is_no_tcp_socket(model: Path, tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", SETTINGS) as running:
        client = running.client()
        assert client.status().http is None
        assert door_pid(running.process.pid) == 0
        assert listens(running.process.pid) == []
        assert not (running.data_dir / "http.key").exists()
        assert "http" not in gliad(running, "status").stdout


def test_a_door_ends_with_its_gliad(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", HTTP) as running:
        pids = []
        for end in (running.kill, running.stop):
            until(lambda: door_pid(running.process.pid) > 0)
            pid = door_pid(running.process.pid)
            address = address_of(running)
            assert ask(address, "/health").status == 200
            end()
            until(lambda pid=pid: not Path(f"/proc/{pid}/cmdline").exists())
            with pytest.raises(OSError, match="refused"):
                ask(address, "/health")
            pids.append(pid)
            if end == running.kill:
                running.restart()
        assert pids[0] != pids[1]


@pytest.mark.fault("F37")
def test_stopping_amid_a_stream_is_quick_and_leaves_nothing(model: Path, tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node", HTTP) as running:
        add_manifest(running, model)
        pid = door_pid(running.process.pid)
        with connect(running) as api:
            parts = iter(
                api.chat.completions.create(messages=user("Hi"), stream=True, **greedy(4000))
            )
            next(parts)
            assert running.stop() == ""
            with pytest.raises((openai.APIError, httpx2.HTTPError)):
                list(parts)
        assert not Path(f"/proc/{pid}/cmdline").exists()


def test_what_keeps_a_door_from_opening_is_told_at_start(node: RunningNode, tmp_path: Path) -> None:
    taken = "{}:{}".format(*address_of(node))
    other = RunningNode.__new__(RunningNode)
    other.data_dir, other.models_dir = tmp_path / "other", tmp_path
    other.data_dir.mkdir(0o700)
    (other.data_dir / "glia.toml").write_text(f'[http]\nlisten = "{taken}"\n{OFFLINE}')
    refused(gliad(other, "start"), 2, "http.listen")
    (other.data_dir / "http.key").chmod(0o644)
    refused(gliad(other, "start"), 2, "http.key is open to other users")


def test_starting_and_status_say_where_it_is(tmp_path: Path) -> None:
    free = RunningNode.__new__(RunningNode)
    free.data_dir, free.models_dir = tmp_path / "free", tmp_path
    free.data_dir.mkdir(0o700)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    (free.data_dir / "glia.toml").write_text(f'[http]\nlisten = "{address}"\n{OFFLINE}')
    started = gliad(free, "start")
    try:
        assert started.returncode == 0
        assert f"http://{address}" in started.stderr
        assert f"http     http://{address}" in gliad(free, "status").stdout
    finally:
        gliad(free, "stop")
