"""A real gliad with a real engine, and K/V of another numerics class: used or not, as is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.attachments import Attachments
from daemon.paths import Paths
from tests.node_parts import RunningNode
from tests.tiny_node import SETTINGS, add_manifest, gliad, prompt, run, save_model

NUM_TOKENS = 100
SEALED = 96


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """Its model was loaded."""
    path = tmp_path_factory.mktemp("exact")
    with RunningNode(path / "node", SETTINGS) as running:
        add_manifest(running, save_model(path / "model"))
        with running.client() as client:
            run(client, prompt(20, 0))
        yield running


def seal_elsewhere(node: RunningNode, tokens: list[int]) -> None:
    """An engine of the model on another kind of machine gives windows of these tokens."""
    (known,) = Attachments(Paths(node.data_dir).attachments).all()
    profile = known.binding.profile
    with node.client() as client:
        client.attach(known.model_id, profile, "native:other")
        client.make_staging(SEALED // profile.block_size * profile.window_payload_bytes)
        sealed = client.seal_end(client.seal_begin(None, 0, tokens[:SEALED], 0, 0))
        client.flush(sealed.windows)


def test_it_is_used_and_said_or_not_used_at_all(node: RunningNode, tmp_path: Path) -> None:
    tokens = prompt(NUM_TOKENS, 1)
    file = tmp_path / "prompt.json"
    file.write_text(json.dumps(tokens))

    def ask(*words: str) -> Any:
        done = gliad(
            node, "run", "tiny", "--token-ids", str(file), "--max-tokens", "20", "--ignore-eos",
            "--json", *words,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    seal_elsewhere(node, tokens)
    inexact = ask()
    assert inexact["exact"] is False
    assert inexact["usage"]["computed"] == NUM_TOKENS - SEALED
    exact = ask("--exact")
    assert exact["exact"] is True
    assert exact["usage"]["computed"] == NUM_TOKENS
    assert exact["token_ids"] != inexact["token_ids"]  # what was sealed is all zeros
    again = ask("--exact", "--explain")
    assert again["exact"] is True
    assert again["explain"]["num_matched"] == SEALED
    assert again["usage"]["computed"] == NUM_TOKENS - SEALED
    assert again["token_ids"] == exact["token_ids"]
    assert ask()["token_ids"] == exact["token_ids"]  # of two as long, the own class's
