"""Requests, engines and their ends: a real gliad over engines that follow a script."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import (
    BadRequest,
    Cancelled,
    EngineDied,
    ManifestError,
    ModelRefused,
    QuotaExceeded,
    UnknownModel,
)
from glia.graph.ids import ModelId
from glia.local import messages as m
from glia.local import values
from tests.builders import CLASS, MODEL, TINY, make_tokens
from tests.node_parts import RunningNode, until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    settings = {"api": {"max_waiting": 2}, "engine": {"max_restarts": 2}}
    with RunningNode(tmp_path / "node", settings) as running:
        for name in ("echo", "slow", "refused", "broken", "mortal", "silent"):
            running.add_manifest(name)
        yield running


def generate(client: Client, model: str, tokens: list[int], max_tokens: int = 4) -> m.Generated:
    *_, last = client.generate(model, tokens, max_tokens=max_tokens)
    assert isinstance(last, m.Generated)
    return last


def engine_of(client: Client, model: str) -> values.EngineValue | None:
    return next((e for e in client.status().engines if e.model == model), None)


def test_a_request_starts_an_engine_and_is_answered(node: RunningNode) -> None:
    tokens = list(make_tokens(40))
    client = node.client()
    *events, generated = client.generate("echo", tokens, max_tokens=4)
    assert isinstance(generated, m.Generated)
    loading = [e for e in events if isinstance(e, m.Progress)]
    assert [(e.what, e.done) for e in loading] == [
        ("starting", 0),
        ("loading", 1),
        ("prefill", 0),
    ]
    emitted = [t for e in events if isinstance(e, m.Emitted) for t in e.tokens]
    assert emitted == generated.tokens == [token + 1 for token in tokens[:4]]
    assert generated.usage.prompt_tokens == 40
    assert 0 < generated.ttft_ms <= generated.timings_ms["total"]
    assert generated.timings_ms["prefill"] == 1.0
    assert 0 < generated.timings_ms["load"] <= generated.ttft_ms  # the engine was started for it
    assert generated.tip is not None
    assert [token for value in client.chain(generated.tip) for token in value.tokens] == tokens[:32]
    value = engine_of(client, "echo")
    assert value is not None
    assert (value.state, value.model_id) == ("ready", MODEL.hex())
    assert client.status().tiers["l0"] == values.TierValue(used_bytes=10, cap_bytes=1000, windows=1)
    assert client.evict("l0").freed_bytes == 10


@pytest.mark.spec(29)
def test_an_answer_is_final_when_its_windows_are_durable(node: RunningNode) -> None:
    """kill -9 right after the reply: every window of its tip is there."""
    for round_number in range(3):
        generated = generate(node.client(), "echo", list(make_tokens(50, seed=round_number)))
        node.restart()
        assert generated.tip is not None
        assert len(node.client().chain(generated.tip)) == 3


def test_closing_the_iterator_cancels(node: RunningNode) -> None:
    client = node.client()
    events = client.generate("slow", [1, 2, 3], max_tokens=8)
    while not isinstance(next(events), m.Emitted):
        pass
    assert engine_of(client, "slow") is not None
    events.close()
    until(lambda: engine_state(client, "slow") == "ready")
    assert generate(client, "echo", [5]).tokens == [6]  # the connection lives on


def engine_state(client: Client, model: str) -> str | None:
    value = engine_of(client, model)
    return value.state if value else None


def test_a_client_that_goes_away_cancels(node: RunningNode) -> None:
    watcher, client = node.client(), node.client()
    events = client.generate("slow", [1], max_tokens=8)
    while not isinstance(next(events), m.Emitted):
        pass
    assert engine_state(watcher, "slow") == "running"
    client.close()
    until(lambda: engine_state(watcher, "slow") == "ready")


def test_cancelling_before_it_runs(node: RunningNode) -> None:
    client = node.client()
    events = client.generate("silent", [1], max_tokens=8)
    assert isinstance(next(events), m.Progress)
    events.close()
    connection = client._connection
    call = m.Generate(900, "silent", None, [1], 8, values.SamplingValue(), [], [])
    connection.call(call)
    connection.call_unanswered(m.Cancel(901, 900))
    with pytest.raises(Cancelled):
        connection.take(900, 10.0)


def test_an_engine_that_dies_under_a_request(node: RunningNode) -> None:
    client = node.client()
    generate(client, "echo", [1])
    with pytest.raises(EngineDied):
        generate(client, "mortal", [1])
    until(lambda: engine_state(client, "mortal") == "ready")
    value = engine_of(client, "mortal")
    assert value is not None
    assert value.num_restarts == 1
    assert generate(client, "echo", [1]).tokens == [2]


def test_an_engine_killed_while_idle_is_started_again(node: RunningNode) -> None:
    client = node.client()
    generate(client, "echo", [1])
    value = engine_of(client, "echo")
    assert value is not None
    assert value.pid is not None
    os.kill(value.pid, signal.SIGKILL)
    until(lambda: restarts(client, "echo") == 1 and engine_state(client, "echo") == "ready")
    assert generate(client, "echo", [1]).tokens == [2]


def restarts(client: Client, model: str) -> int:
    value = engine_of(client, model)
    return value.num_restarts if value else -1


def test_restarts_end_and_a_new_demand_begins_anew(node: RunningNode) -> None:
    client = node.client()
    for _ in range(3):  # max_restarts is 2
        with pytest.raises(EngineDied):
            generate(client, "mortal", [1])
        until(lambda: engine_state(client, "mortal") in ("ready", "failed"))
    assert engine_state(client, "mortal") == "failed"
    with pytest.raises(EngineDied):
        generate(client, "mortal", [1])
    until(lambda: engine_state(client, "mortal") == "ready")
    assert restarts(client, "mortal") == 1


def test_what_cannot_be_loaded_says_why(node: RunningNode) -> None:
    client = node.client()
    with pytest.raises(ModelRefused, match="type xyz is not allowed") as refused:
        generate(client, "refused", [1])
    assert refused.value.hint == "other"
    assert engine_state(client, "refused") == "failed"
    with pytest.raises(EngineDied, match="exit code 1"):
        generate(client, "broken", [1])
    with pytest.raises(UnknownModel):
        generate(client, "nobody", [1])
    for name in ("../echo", ".hidden", "", "a/b", "x" * 65):
        with pytest.raises(UnknownModel):
            generate(client, name, [1])
    with pytest.raises(BadRequest, match="no dtype"):
        list(client.generate("echo", [1], max_tokens=1, dtype="int4"))


def test_a_manifest_with_a_wrong_key_names_file_line_and_key(node: RunningNode) -> None:
    (node.models_dir / "odd.model").write_text('source = "x"\nblok_size = 16\n')
    client = node.client()
    with pytest.raises(ManifestError, match=r"odd\.model:2: .*blok_size"):
        generate(client, "odd", [1])
    assert "odd" not in [model.name for model in client.models()]


def test_waiting_requests_are_bounded(node: RunningNode) -> None:
    client = node.client()
    first, second, third = (client.generate("slow", [n], max_tokens=1) for n in range(3))
    for events in (first, second):
        while not isinstance(next(events), m.Emitted):
            pass
    with pytest.raises(QuotaExceeded, match="2 requests wait"):
        next(third)
    first.close()
    second.close()


def test_adding_a_model_loads_it_once(node: RunningNode) -> None:
    client = node.client()
    told: list[str] = []
    manifest = 'source = "somewhere"\ndtype = "float32"\n'
    added = client.add_model(
        "echo2", manifest, on_progress=lambda what, _done, _total: told.append(what)
    )
    assert told == ["starting", "loading"]
    assert (added.name, added.model_id, added.files_dir) == ("echo2", MODEL.hex(), "/nowhere")
    assert (added.dtype, added.kv_quant_scheme, added.context_tokens) == ("float32", "f32", 4096)
    assert generate(client, "echo2", [1]).tokens == [2]
    with pytest.raises(BadRequest, match="already"):
        client.add_model("echo2", manifest)
    assert client.add_model("echo2", manifest, replace=True).name == "echo2"
    with pytest.raises(ModelRefused):
        client.add_model("refused2", manifest)
    for name in ("../x", "a b", ""):
        with pytest.raises(BadRequest, match="not a model name"):
            client.add_model(name, manifest)
    names = [model.name for model in client.models()]
    assert "echo2" in names
    assert "refused2" not in names
    node.restart()
    (kept,) = [model for model in node.client().models() if model.name == "echo2"]
    assert kept.model_id == MODEL.hex()
    assert generate(node.client(), "echo2", [1]).tokens == [2]


def test_a_model_directory_without_a_manifest_counts(node: RunningNode) -> None:
    directory = node.models_dir / "echo-bare"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "llama"}')
    client = node.client()
    (value,) = [model for model in client.models() if model.name == "echo-bare"]
    assert (value.dtype, value.block_size) == ("bfloat16", 16)
    assert generate(client, "echo-bare", [7]).tokens == [8]


def test_a_guest_engine_serves_and_a_second_one_is_refused(node: RunningNode) -> None:
    guest, client = node.client(kind="engine"), node.client()
    with pytest.raises(BadRequest, match="a client serves no model"):
        node.client().attach(MODEL, TINY, CLASS, serves="echo", dtype="bfloat16")
    attach_id = guest.attach(MODEL, TINY, CLASS, serves="echo", dtype="bfloat16")
    guest.send_event(m.Ready(attach_id, 0, []))
    until(lambda: engine_state(client, "echo") == "ready")
    other = node.client(kind="engine")
    with pytest.raises(BadRequest, match="another engine"):
        other.attach(ModelId(bytes(32)), TINY, CLASS, serves="echo", dtype="bfloat16")
    events = client.generate("echo", [1, 2], max_tokens=1)
    pending = client._connection.call(
        m.Generate(800, "echo", None, [1, 2], 1, values.SamplingValue(), [], [])
    )
    run = guest.poll(10.0)
    assert isinstance(run, m.Run)
    assert run.tokens == [1, 2]
    guest.send_reply(m.Failed(run.id, "pool_exhausted", "too small", "raise l0.size"))
    with pytest.raises(Exception, match="too small"):
        client._connection.take(pending, 10.0)
    events.close()
    guest.close()
    until(lambda: engine_of(client, "echo") is None)
    assert generate(client, "echo", [1]).tokens == [2]  # gliad starts its own now


def test_engines_end_with_gliad(node: RunningNode) -> None:
    client = node.client()
    pids = []
    for name in ("echo", "slow"):
        events = client.generate(name, [1], max_tokens=1)
        while not isinstance(next(events), m.Emitted):
            pass
        value = engine_of(client, name)
        assert value is not None
        assert value.pid is not None
        pids.append(value.pid)
    assert all(is_alive(pid) for pid in pids)
    node.stop()
    assert not any(is_alive(pid) for pid in pids)


def test_engines_end_when_gliad_is_killed(node: RunningNode) -> None:
    client = node.client()
    generate(client, "echo", [1])
    value = engine_of(client, "echo")
    assert value is not None
    assert value.pid is not None
    node.kill()
    pid = value.pid
    until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and nobody waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.spec(46)
def test_no_network_socket_is_opened(node: RunningNode) -> None:
    """All sockets of gliad and its engine, by inode, against the kernel's tables."""
    client = node.client()
    generate(client, "echo", [1])
    value = engine_of(client, "echo")
    assert value is not None
    assert value.pid is not None
    network = set()
    for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        path = Path("/proc/net") / table
        if path.exists():
            network |= {line.split()[9] for line in path.read_text().splitlines()[1:]}
    unix = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    for pid in (node.process.pid, value.pid):
        links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        inodes = {link[8:-1] for link in links if link.startswith("socket:")}
        assert inodes, "there is a Unix socket at least"
        assert not inodes & network
        assert inodes <= unix
