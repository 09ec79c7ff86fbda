"""Real engines that end when idle, make room for each other, hang, or are loaded beforehand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import CapacityError, EngineDied
from glia.local import messages as m
from glia.local import values
from tests.gliad_parts import OFFLINE
from tests.node_parts import MIB, RunningNode, until
from tests.tiny_node import (
    SETTINGS,
    add_manifest,
    engine_of,
    pid_of,
    prompt,
    run,
    save_model,
    until_emitted,
)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def node(tmp_path: Path, model_dir: Path) -> Iterator[RunningNode]:
    """Room for one engine, which ends soon when idle, or when it hangs."""
    limits = {"memory_bytes": 700 * MIB, "idle_unload_s": 2.0, "stall_timeout_s": 4.0}
    settings = {**SETTINGS, "engine": {**SETTINGS["engine"], **limits}}
    with RunningNode(tmp_path / "node", settings) as running:
        add_manifest(running, model_dir)
        add_manifest(running, model_dir, "other")
        yield running


def test_a_conversation_goes_on_after_its_engine_has_gone(node: RunningNode) -> None:
    client = node.client()
    first, second = prompt(200, 1), prompt(40, 2)
    begun = values.TurnValue("talk", 0, [values.MessageValue("", None, 0, 200)])
    *_, told = client.generate("tiny", first, max_tokens=8, ignore_eos=True, turn=begun)
    assert isinstance(told, m.Generated)
    engine = engine_of(client)
    assert engine is not None
    assert 100 * MIB < engine.memory_bytes < 700 * MIB  # what it has, not what was expected
    pid = pid_of(client)
    until(lambda: engine_of(client) is None)
    assert not Path(f"/proc/{pid}").exists()
    client.evict("l1")
    log = list(client.conversation("talk").tokens)
    assert log == first + told.tokens
    goes_on = values.TurnValue(
        "talk", len(log), [values.MessageValue("", None, len(log), len(log) + 40)]
    )
    *_, after = client.generate("tiny", log + second, max_tokens=8, ignore_eos=True, turn=goes_on)
    assert isinstance(after, m.Generated)
    assert after.usage.cached.l2 == 208
    assert engine_of(client) is not None


def test_two_models_take_turns_where_there_is_memory_for_one(node: RunningNode) -> None:
    client, other = node.client(), node.client()
    tokens = prompt(100, 3)
    answer = run(client, tokens).tokens
    assert run(client, tokens, "other").tokens == answer
    assert engine_of(client) is None  # it made room
    events = client.generate("other", prompt(50, 4), max_tokens=1500, ignore_eos=True)
    with closing(events):  # type: ignore[type-var]
        until_emitted(events)
        waiting = other.generate("tiny", tokens, max_tokens=8, ignore_eos=True)
        told = next(waiting)
        assert isinstance(told, m.Progress)
        assert told.what == "waiting for memory"
        status = engine_of(client)
        assert status is not None
        assert (status.state, status.loading) == ("starting", "waiting for memory")
    *_, last = waiting
    assert isinstance(last, m.Generated)
    assert last.tokens == answer
    assert last.usage.cached.l1 == 96
    assert engine_of(client, "other") is None


def test_an_engine_that_hangs_is_ended_and_its_request_told(node: RunningNode) -> None:
    """SIGSTOP: it neither works nor dies."""
    client = node.client()
    events = client.generate("tiny", prompt(50, 5), max_tokens=1900, ignore_eos=True)
    until_emitted(events)
    pid = pid_of(client)
    timer = threading.Timer(60.0, os.kill, (pid, signal.SIGCONT))  # should nobody end it
    timer.start()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EngineDied, match="said nothing for"):
            for _ in events:
                pass
        until(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        timer.cancel()
    assert len(run(client, prompt(50, 5)).tokens) == 8
    assert "said nothing for" in node.log


def test_what_can_never_fit_is_refused(tmp_path: Path, model_dir: Path) -> None:
    engine = {**SETTINGS["engine"], "memory_bytes": 300 * MIB}
    with RunningNode(tmp_path / "node", {**SETTINGS, "engine": engine}) as small:
        add_manifest(small, model_dir)
        client: Client = small.client()
        with pytest.raises(CapacityError, match="tiny in float32 needs about 5") as caught:
            run(client, prompt(10, 6))
        assert caught.value.hint is not None
        assert "[engine] memory" in caught.value.hint
        value = engine_of(client)
        assert value is not None
        assert value.state == "failed"


def test_preloaded_models_are_there_and_one_that_fails_is_told(
    tmp_path: Path, model_dir: Path
) -> None:
    data_dir, models = tmp_path / "node", tmp_path / "models"
    models.mkdir()
    (models / "tiny.model").write_text(f'source = "{model_dir}"\ndtype = "float32"\n')
    config = tmp_path / "c.toml"
    config.write_text(
        f'models_dir = "{models}"\n[engine]\nnum_threads = 1\npreload = ["tiny", "nobody"]\n'
        '[l0]\nsize = "4MiB"\n[l1]\nsize = "8MiB"\nprefault_size = "0B"\n'
        f"{OFFLINE}"
    )
    try:
        started = command(data_dir, "start", "--config", str(config), "--wait-models")
        assert started.returncode == 8, started.stderr
        assert "gliad is running" in started.stderr
        assert "nobody was not loaded: no model is called 'nobody' here" in started.stderr
        with Client.connect(data_dir) as client:
            states = {value.model: value.state for value in client.status().engines}
            assert states == {"tiny": "ready", "nobody": "failed"}
            assert len(run(client, prompt(20, 7)).tokens) == 8
        listed = command(data_dir, "config", "--config", str(config))
        assert listed.stderr == ""
        config.write_text(config.read_text() + "[log]\nnum_files = 2\n")
        listed = command(data_dir, "config", "--config", str(config))
        assert "the running gliad has another: log.num_files = 5" in listed.stderr
    finally:
        command(data_dir, "stop")


def command(data_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "daemon", *words, "--data-dir", str(data_dir)],
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
