"""What a clumsy user does, on a real gliad with real engines: told in words, and nothing lost."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.errors import BadModelFile, BadRequest, NotFound, UnknownModel
from glia.local import messages as m
from tests.node_parts import RunningNode, until
from tests.tiny_node import (
    SETTINGS,
    add_manifest,
    command,
    engine_of,
    gliad,
    prompt,
    refused,
    run,
    save_model,
)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def other_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "other", seed=1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningNode]:
    """One for all: each test has prompts of its own, and leaves it running."""
    with RunningNode(tmp_path_factory.mktemp("shared") / "node", SETTINGS) as running:
        add_manifest(running, model_dir)
        yield running


# -- models --------------------------------------------------------------------------------


def test_a_path_with_spaces_and_letters_of_any_kind_and_a_relative_one(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    odd = tmp_path / 'my "модель" é'
    odd.symlink_to(model_dir)
    done = gliad(node, "models", "add", "odd", odd.name, "--dtype", "float32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    client = node.client()
    expected = run(client, prompt(40, 1))
    assert run(client, prompt(40, 1), "odd").tokens == expected.tokens
    refused(gliad(node, "models", "add", "odd", str(model_dir)), 2, "already")
    refused(gliad(node, "models", "add", "no/name", str(model_dir)), 2, "not a model name")
    assert run(client, prompt(40, 1), "odd").tokens == expected.tokens


GGUF = {
    "garbage": bytes(range(256)) * 64,
    "a header of garbage": b"GGUF\3\0\0\0" + b"\xff" * 4096,
    "cut": b"GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\4\0",
}


def test_a_gguf_file_that_is_none(node: RunningNode, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    client = node.client()
    before = run(client, prompt(40, 2))
    for content in GGUF.values():
        path.write_bytes(content)
        refused(gliad(node, "models", "add", "gguf", str(path)), 2, str(path))
    add_manifest(node, path, "gguf")  # past the command line: the engine refuses, too
    with pytest.raises(BadModelFile) as caught:
        run(client, prompt(40, 2), "gguf")
    assert caught.value.hint
    (node.models_dir / "gguf.model").unlink()
    assert run(client, prompt(40, 2)).tokens == before.tokens


def test_a_model_that_failed_to_load_is_tried_again_when_asked(
    node: RunningNode, model_dir: Path, tmp_path: Path
) -> None:
    source = save_model(tmp_path / "broken")
    weights = source / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-64])
    add_manifest(node, source, "mended")
    client = node.client()
    with pytest.raises(BadModelFile):
        run(client, prompt(40, 3), "mended")
    weights.write_bytes(whole)
    assert run(client, prompt(40, 3), "mended").tokens == run(client, prompt(40, 3)).tokens


def test_a_manifest_changed_by_hand_counts_from_the_next_request(
    node: RunningNode, model_dir: Path, other_dir: Path
) -> None:
    """Else the old model would answer a prompt that the new one's tokenizer made."""
    client = node.client()
    add_manifest(node, other_dir, "second")
    expected = run(client, prompt(60, 4), "second")
    assert expected.tokens != run(client, prompt(60, 4)).tokens
    add_manifest(node, model_dir, "changing")
    assert run(client, prompt(60, 4), "changing").tokens == run(client, prompt(60, 4)).tokens
    add_manifest(node, other_dir, "changing")
    assert run(client, prompt(60, 4), "changing").tokens == expected.tokens
    (node.models_dir / "changing.model").unlink()
    with pytest.raises(UnknownModel):
        run(client, prompt(60, 4), "changing")


def test_whoever_leaves_while_a_name_is_replaced_leaves_it_as_it_was(
    node: RunningNode, model_dir: Path, other_dir: Path
) -> None:
    watcher, leaver = node.client(), node.client()
    text = 'source = "{}"\ndtype = "float32"\n'
    watcher.add_model("kept", text.format(model_dir))
    expected = run(watcher, prompt(60, 5), "kept")
    leaver._connection.call(m.AddModel(900, "kept", text.format(other_dir), True))
    until(lambda: (e := engine_of(watcher, "kept")) is not None and e.state == "starting")
    with pytest.raises(BadRequest, match="being added"):
        run(watcher, prompt(60, 5), "kept")
    leaver.close()

    def is_over() -> bool:
        try:
            return run(watcher, prompt(60, 5), "kept").tokens == expected.tokens
        except BadRequest:
            return False

    until(is_over)


# -- requests ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": 2**70},
        {"tokens": [-1]},
        {"tokens": [2**32]},
        {"tokens": [1.5]},
        {"tokens": "abc"},
        {"sampling": (-1.0, 1.0, 0, 0)},
        {"sampling": (0.0, 0.0, 0, 0)},
        {"sampling": (math.inf, 1.0, 0, 0)},
        {"sampling": (math.nan, 1.0, 0, 0)},
        {"sampling": (1.0, math.nan, 0, 0)},
        {"stop": [""]},
        {"stop": ["x"] * 17},
    ],
    ids=str,
)
def test_values_that_cannot_be_end_the_connection_and_nothing_else(
    node: RunningNode, change: dict[str, object]
) -> None:
    fields: dict[str, object] = {
        "id": 900, "model": "tiny", "dtype": None, "tokens": [5], "max_tokens": 1,
        "sampling": (0.0, 1.0, 0, 0), "stop_tokens": [], "stop": [], "ignore_eos": False,
    }  # fmt: skip
    client = node.client()
    call = m.Generate(**{**fields, **change})  # type: ignore[arg-type]
    try:
        client._connection.call(call)
    except OverflowError:  # it cannot even be sent
        return
    with pytest.raises(Exception, match="not a message of the local API"):
        client._connection.take(900, 10.0)
    assert len(run(node.client(), prompt(20, 6)).tokens) == 8


def test_two_runs_at_once_and_one_is_interrupted(node: RunningNode, tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(prompt(100, 8)))
    expected = run(node.client(), prompt(100, 8), num=12)
    words = ("run", "tiny", "--token-ids", str(ids), "--ignore-eos", "--max-tokens")
    children = [
        subprocess.Popen(
            command(node, *words, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for more in (("12", "--json"), ("1900",), ("12", "--json"))
    ]
    long = children[1]
    assert long.stdout
    assert long.stdout.read(1) == "w"
    long.send_signal(signal.SIGINT)
    said = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 130, 0], said
    assert said[1][1] == "interrupted\n"
    for out, _ in (said[0], said[2]):
        assert json.loads(out)["token_ids"] == expected.tokens


def test_stop_during_a_run_keeps_what_was_committed(node: RunningNode, tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(prompt(300, 9)))
    words = ("run", "tiny", "--token-ids", str(ids), "--ignore-eos", "--json")
    kept = json.loads(gliad(node, *words, "--max-tokens", "8").stdout)
    child = subprocess.Popen(
        command(node, *words, "--max-tokens", "1700"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watcher = node.client()
    until(lambda: (e := engine_of(watcher)) is not None and e.num_running > 0)
    stopped = subprocess.Popen(command(node, "stop"), stderr=subprocess.PIPE, text=True)
    node.wait()  # it is our child: whoever waits for it reaps it
    assert (stopped.communicate(timeout=30)[1].startswith("gliad has stopped"), 0) == (
        True, stopped.returncode,
    )  # fmt: skip
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (2, ""), err
    assert err.splitlines()[-1] == f"hint: gliad start --data-dir {node.data_dir}"
    node.restart()
    client = node.client()
    again = run(client, prompt(300, 9))
    assert (again.tokens, again.tip) == (kept["token_ids"], bytes.fromhex(kept["tip"]))
    assert again.usage.cached.l2 == 288
    assert client.check().bad == 0


@pytest.mark.parametrize("tip", ["zz", "ab" * 31, "0x" + "ab" * 31, "ab" * 32])
def test_a_tip_that_is_none(node: RunningNode, tip: str) -> None:
    refused(gliad(node, "chain", tip), 3 if tip.startswith("ab") else 2, "")
    with pytest.raises(NotFound):
        node.client().chain(bytes(32))


@pytest.mark.parametrize(
    "words",
    ["evict --tier l7", "evict", "wait --timeout nan", "start --timeout -1", "bogus", "run"],
)
def test_words_that_are_no_command(node: RunningNode, words: str) -> None:
    refused(gliad(node, *words.split()), 2, "error: ")


@pytest.mark.parametrize("words", ["status", "status --json", "models", "run tiny w1 --raw"])
def test_an_output_that_takes_no_more(node: RunningNode, words: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(node, *words.split()), stdout=full, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 2
    assert "standard output cannot be written: No space left" in done.stderr
    assert done.stderr.splitlines()[-1] == "hint: df -h"


def test_a_terminal_that_lacks_a_letter(node: RunningNode, tmp_path: Path, model_dir: Path) -> None:
    odd = tmp_path / "модель"
    odd.symlink_to(model_dir)
    add_manifest(node, odd, "letters")
    done = subprocess.run(
        command(node, "models"), capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    (node.models_dir / "letters.model").unlink()
    assert (done.returncode, "??????" in done.stdout) == (0, True), done.stderr
