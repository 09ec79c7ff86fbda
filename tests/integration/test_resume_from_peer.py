"""What one gliad computed in public another one takes from it; what is private it computes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from glia.store.published import Published
from tests.gliad_parts import LOOPBACK, Gliad, gliads
from tests.node_parts import until
from tests.pace import PATIENCE_S
from tests.tiny_node import prompt, save_model

NUM_TOKENS = 1000
WIDTH = 49152  # of K and V there is as little as ever, but it takes seconds to compute them
SHORT = 60  # too few for anybody to learn from them how fast it computes


@contextmanager
def tiny_gliads(num: int, path: Path, width: int = WIDTH) -> Iterator[tuple[Gliad, ...]]:
    """With the tiny model, not yet started."""
    source = save_model(path / "models" / "tiny", intermediate_size=width)
    (path / "tiny.model").write_text(f'source = "{source}"\ndtype = "float32"\n')
    with gliads(num) as made:
        for each in made:
            file = each.data_dir / "glia.toml"
            file.write_text(f'models_dir = "{path}"\n{file.read_text()}')
        yield made


class Asked:
    """A prompt in a file."""

    def __init__(self, path: Path, seed: int, num_tokens: int = NUM_TOKENS) -> None:
        self.num_tokens = num_tokens
        self._file = path / f"prompt{seed}.json"
        self._file.write_text(json.dumps(prompt(num_tokens, seed)))

    def of(self, node: Gliad, *words: str) -> Any:
        file = ("--token-ids", str(self._file))
        found = node.json("run", "tiny", *file, "--max-tokens", "8", "--ignore-eos", *words)
        cached = found["usage"]["cached"]
        assert sum(cached.values()) + found["usage"]["computed"] == self.num_tokens
        return found

    def taken(self, node: Gliad) -> tuple[Any, list[Any]]:
        """Ask in public until it comes from peers, from the beginning each time: on a busy machine
        they may be too slow for what asking them may cost.

        Returns: the last answer, and the usage of each.
        """
        usages: list[Any] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            found = self.of(node, "--public")
            usages.append(found["usage"])
            if found["usage"]["cached"]["peers"] >= 0.9 * self.num_tokens:
                return found, usages
            assert time.monotonic() < deadline_s, found
            node("forget", found["conversation"], "--yes")

    def where(self, node: Gliad) -> Any:
        return node.json("where", "tiny", "--token-ids", str(self._file))


def start(node: Gliad, *friends: str) -> str:
    """Returns: its address."""
    node(
        "start", "--listen", LOOPBACK, *(word for each in friends for word in ("--bootstrap", each))
    )
    if friends:
        until(lambda: len(node.connected()) >= len(friends))
    return node.address


def published(node: Gliad, num_windows: int) -> None:
    """Return when it shows peers so many windows."""
    until(lambda: node.counted("windows_published") >= num_windows)


@pytest.mark.spec(14, 51, 70)
def test_what_was_computed_in_public_is_taken_and_passed_on(tmp_path: Path) -> None:
    asked, short = Asked(tmp_path, 1), Asked(tmp_path, 2, SHORT)
    with tiny_gliads(3, tmp_path) as (one, two, three):
        address = start(one)
        said = short.of(one, "--public")
        first = asked.of(one, "--public")
        assert first["usage"]["cached"]["peers"] == 0
        published(one, NUM_TOKENS // 16 + SHORT // 16)

        passed_on = start(two, address)
        second, usages = asked.taken(two)
        assert second["token_ids"] == first["token_ids"]
        assert second["exact"] is True
        usage, counters = second["usage"], two.json("status")["counters"]
        run = two.json("ps")[0]
        assert (run["cached"], run["computed"]) == (usage["cached"], usage["computed"])
        assert sum(usage["cached"].values()) + usage["computed"] == usage["prompt_tokens"]
        assert counters["cached_peers_tokens"] == sum(each["cached"]["peers"] for each in usages)
        assert counters["computed_tokens"] == sum(each["computed"] for each in usages)
        assert {"find", "fetch"} <= set(second["timings_ms"])
        (source,) = two.json("peers")
        assert source["blocks_in"] >= 2 * (NUM_TOKENS // 16 - 1)
        # It may have sent what was not waited for, and it counts what it has sent.
        until(lambda: one.json("peers")[0]["blocks_out"] >= source["blocks_in"])
        (holder,) = asked.where(two)["holders"]
        assert holder["peer"] == source["peer"]
        assert holder["num_tokens"] == NUM_TOKENS // 16 * 16
        assert holder["signers"] == [one.json("id")["neuron"]]
        again = asked.of(two, "--public")
        assert again["usage"]["cached"]["peers"] == 0
        assert again["token_ids"] == first["token_ids"]

        start(three, address)
        alone = short.of(three)
        assert alone["usage"]["cached"]["peers"] == 0
        assert alone["usage"]["computed"] == SHORT
        assert alone["token_ids"] == said["token_ids"]
        assert three.counted("prompts_searched") == 0

        one.kill()
        three("peers", "add", passed_on)
        third, _ = asked.taken(three)
        assert third["token_ids"] == first["token_ids"]
        signed = {each.json("id")["neuron"]: each for each in (two, three)}
        assert not _signers(three.data_dir, three) & set(signed)


def _signers(data_dir: Path, node: Gliad) -> set[str]:
    """Whose links are in a node's published index for what it took from peers; ends the node."""
    node("stop")
    shown = Published(data_dir / "published")
    try:
        (tip,) = [row for row in shown.tips() if row.num_windows >= NUM_TOKENS // 16]
        (row,) = shown.windows_at(tip.window_id, [16])
        links = shown.links(row.window_id)
    finally:
        shown.close()
    return {link[-96:-64].hex() for link in links}
