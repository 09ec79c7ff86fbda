"""A real gliad that takes K and V from one that lies: what it uses, finds, marks, and remembers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from glia.graph.ids import WindowId
from tests.integration.test_resume_from_peer import Asked, published, start, tiny_gliads
from tests.poison import poison

NUM = 300
WHOLE = (NUM - 1) // 16
DEEP, SHALLOW = 5, 12


def deep(window: int, layer: int, payload: np.ndarray) -> None:
    """One deep layer of one window is 10 % off; another window's first layer is another's."""
    if (window, layer) == (DEEP, 1):
        payload *= np.float32(1.1)
    if (window, layer) == (SHALLOW, 0):
        payload[:] = np.roll(payload, 3)


@pytest.mark.spec(44, 64)
def test_what_a_liar_sent_is_found_dropped_marked_and_not_taken_again(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 1, NUM)
    with tiny_gliads(2, tmp_path) as (liar, node):
        start(liar)
        true = asked.of(liar, "--public")
        published(liar, WHOLE)
        liar("stop")
        chain = poison(liar.data_dir, WindowId(bytes.fromhex(true["tip"])), deep)
        address = start(liar)

        start(node, address)
        neuron = liar.json("id")["neuron"]
        node("trust", neuron, "own")  # so that the deep one is drawn by chance 1 time in 200
        Asked(tmp_path, 2, 20).of(node)  # loads the model
        assert node.json("fetch", chain[-1].window_id.hex())["windows"] == len(chain)
        used = asked.of(node, "--conversation", "talk")
        # The check finds the shallow one, so it and what follows are computed here; the deep one
        # is used, as nobody looked.
        counters = node.json("status")["counters"]
        assert counters["windows_refused"] == 1
        assert used["usage"]["cached"]["peers"] == SHALLOW * 16
        if not counters.get("audits_differs"):  # else it was drawn all the same
            told = node.json("audit", chain[SHALLOW - 1].window_id.hex())
            (found,) = told["found"]
            assert found["finding"]["window"] == chain[DEEP].window_id.hex()
            assert (found["finding"]["verdict"], found["finding"]["layer"]) == ("differs", 1)
            assert told["calibrated"] is False  # so nobody is accused
        assert node.json("audit")["since_start"]["audits_differs"] == 1
        (about,) = (each for each in node.json("trust") if each["neuron"] == neuron)
        assert (about["trust"], about["caught_s"]) == ("own", 0.0)
        again = asked.of(node)
        assert again["token_ids"] == true["token_ids"]
        (talk,) = (c for c in node.json("conversations") if c["name"] == "talk")
        assert talk["num_tainted"] == 1
        said = node.json("export", "talk")["messages"]
        assert said[-1]["is_tainted"]

        node("trust", neuron, "never")
        node("stop")
        start(node, address)
        assert node.json("trust", neuron[:12])[0]["word"] == "never"
        third = asked.of(node)
        assert third["token_ids"] == true["token_ids"]
        assert third["usage"]["cached"]["peers"] == 0
        assert "attested" in node("fetch", chain[-1].window_id.hex(), code=3).stderr
        assert node.json("audit")["neurons"]
