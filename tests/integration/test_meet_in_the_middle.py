"""Two gliads, and a provider that sends about as fast as the other one computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gliad_parts import LOOPBACK, OFFLINE, Gliad, gliads
from tests.node_parts import until
from tests.tiny_node import prompt, save_model

NUM_TOKENS = 1900
NUM_LAYERS = 4
WINDOW_BYTES = NUM_LAYERS * (192 + 16 * 2 * 2 * 16 * 4)
SETTINGS = "prefill_tokens = 64\n"


class Asked:
    """A prompt in a file."""

    def __init__(self, path: Path, seed: int) -> None:
        self._file = path / f"prompt{seed}.json"
        self._file.write_text(json.dumps(prompt(NUM_TOKENS, seed)))

    def of(self, node: Gliad, *words: str) -> Any:
        file = ("--token-ids", str(self._file), "--max-tokens", "8", "--ignore-eos")
        return node.json("run", "tiny", *file, *words)


@pytest.mark.spec(45)
def test_half_is_computed_half_comes_and_the_answer_is_that_of_a_cold_run(tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "models" / "tiny",
        hidden_size=256, intermediate_size=1024, num_hidden_layers=NUM_LAYERS,
    )  # fmt: skip
    (tmp_path / "tiny.model").write_text(f'source = "{source}"\ndtype = "float32"\n')
    asked, other = Asked(tmp_path, 1), Asked(tmp_path, 2)
    with gliads(2, SETTINGS) as (one, two):
        for each in (one, two):
            file = each.data_dir / "glia.toml"
            file.write_text(f'models_dir = "{tmp_path}"\n{file.read_text()}')
        one("start", "--listen", LOOPBACK)
        cold = asked.of(one, "--public")
        until(lambda: published(one) >= NUM_TOKENS // 16)
        one("stop")
        send_as_fast_as_computed(one, cold["timings_ms"]["prefill"] / 1000)
        one("start", "--listen", LOOPBACK)
        two("start", "--listen", LOOPBACK, "--bootstrap", one.address)
        until(lambda: len(two.connected()) > 0)
        other.of(two)  # now it knows how fast it computes

        met = asked.of(two, "--public", "--explain")
        fetched = met["explain"]["fetched"]
        assert (met["token_ids"], met["tip"]) == (cold["token_ids"], cold["tip"])
        assert met["exact"] is True
        assert fetched["why"] == "met"
        assert fetched["num_met"] >= 8 * 16
        assert fetched["num_tokens"] == met["usage"]["cached"]["peers"]
        assert met["usage"]["computed"] >= 64
        assert met["usage"]["computed"] + fetched["num_tokens"] == NUM_TOKENS
        (source_of,) = fetched["sources"]
        assert source_of["blocks"] >= NUM_LAYERS * fetched["num_tokens"] // 16

        assert two.json("check")["bad"] == 0
        again = asked.of(two, "--public")
        assert (again["token_ids"], again["tip"]) == (cold["token_ids"], cold["tip"])
        assert again["usage"]["computed"] <= 16


def send_as_fast_as_computed(node: Gliad, compute_s: float) -> None:
    """So that it is neither sooner to wait for all of it nor to compute all."""
    upload = round(NUM_TOKENS // 16 * WINDOW_BYTES / compute_s)
    file = node.data_dir / "glia.toml"
    file.write_text(file.read_text().replace(OFFLINE, f'[network]\nupload = "{upload}B"\n'))


def published(node: Gliad) -> int:
    return node.counted("windows_published")
