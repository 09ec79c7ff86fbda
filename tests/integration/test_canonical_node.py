"""A real gliad with real engines: the canonical class beside the native one, never mixed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.attachments import Attachments
from daemon.paths import Paths
from glia.errors import BadRequest
from tests.node_parts import RunningNode
from tests.tiny_node import SETTINGS, add_manifest, gliad, prompt, run, save_model

NUM_TOKENS = 100
SEALED = 96


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    path = tmp_path_factory.mktemp("canonical")
    with RunningNode(path / "node", SETTINGS) as running:
        add_manifest(running, save_model(path / "model"))
        with running.client() as client:  # how it attaches is known from now on
            run(client, prompt(20, 0))
        yield running


def ask(node: RunningNode, tokens: list[int], path: Path, *words: str) -> Any:
    file = path / "prompt.json"
    file.write_text(json.dumps(tokens))
    done = gliad(
        node, "run", "tiny", "--token-ids", str(file), "--max-tokens", "20", "--ignore-eos",
        "--json", "--explain", *words,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def classes(node: RunningNode, tip: str) -> list[str]:
    with node.client() as client:
        return [w.numerics_class.partition(":")[0] for w in client.chain(bytes.fromhex(tip))]


def test_native_windows_are_nothing_to_it_and_its_own_are_exact_to_all(
    node: RunningNode, tmp_path: Path
) -> None:
    tokens = prompt(NUM_TOKENS, 1)
    native = ask(node, tokens, tmp_path)
    assert native["numerics_class"].startswith("native:")
    canonical = ask(node, tokens, tmp_path, "--canonical")
    assert (canonical["numerics_class"], canonical["exact"]) == ("canonical", True)
    assert canonical["usage"]["computed"] == NUM_TOKENS
    assert canonical["explain"]["num_matched"] == 0
    again = ask(node, tokens, tmp_path, "--canonical")
    assert again["usage"]["computed"] == NUM_TOKENS - SEALED
    assert again["token_ids"] == canonical["token_ids"]
    assert again["tip"] == canonical["tip"] != native["tip"]
    assert classes(node, canonical["tip"]) == ["canonical"] * 7
    assert classes(node, native["tip"]) == ["native"] * 7
    own = ask(node, tokens, tmp_path, "--exact")  # as long: the own class's
    assert own["tip"] == native["tip"]


def test_a_native_answer_goes_on_behind_canonical_windows(
    node: RunningNode, tmp_path: Path
) -> None:
    tokens = prompt(NUM_TOKENS, 2)
    ask(node, tokens, tmp_path, "--canonical")
    native = ask(node, tokens, tmp_path, "--exact")
    assert (native["usage"]["computed"], native["exact"]) == (NUM_TOKENS - SEALED, True)
    assert native["explain"]["num_matched"] == SEALED
    assert classes(node, native["tip"]) == ["canonical"] * 6 + ["native"]
    behind = ask(node, tokens + native["token_ids"], tmp_path, "--canonical")
    assert classes(node, behind["tip"]) == ["canonical"] * 8


def test_a_conversation_stays_in_its_class(node: RunningNode, tmp_path: Path) -> None:
    first = ask(node, prompt(40, 3), tmp_path, "--conversation", "talk", "--canonical")
    assert classes(node, first["tip"]) == ["canonical"] * 3
    file = tmp_path / "prompt.json"
    words = ("run", "tiny", "--token-ids", str(file), "--conversation", "talk")
    refused = gliad(node, *words, "--dtype", "float32")
    assert (refused.returncode, "float64" in refused.stderr) == (2, True)
    on = ask(node, prompt(40, 4), tmp_path, "--conversation", "talk")
    assert on["numerics_class"] == "canonical"
    listed = json.loads(gliad(node, "ps", "--json").stdout)
    assert listed[0]["numerics_class"] == "canonical"
    assert "canonical" in gliad(node, "ps").stdout


def test_no_canonical_window_is_sealed_behind_another(node: RunningNode) -> None:
    tokens = prompt(NUM_TOKENS, 5)
    with node.client() as client:
        tip = run(client, tokens).tip
    known = next(a for a in Attachments(Paths(node.data_dir).attachments).all())
    profile = known.binding.profile
    with node.client() as client:
        client.attach(known.model_id, profile, "canonical")
        client.make_staging(profile.window_payload_bytes)
        with pytest.raises(BadRequest, match="not canonical"):
            client.seal_end(client.seal_begin(tip, SEALED, tokens[:16], 0, 0))
        assert client.match(tokens, exact=False) == []
