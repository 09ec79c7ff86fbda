"""A real gliad that measured how far off honest windows are: a layer that is 10 % off is a lie."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from glia.graph.ids import WindowId
from tests.gliad_parts import gliads
from tests.integration.test_resume_from_peer import Asked, published, start
from tests.poison import poison
from tests.tiny_node import save_model

NUM, DEEP = 120, 4


def deep(window: int, layer: int, payload: np.ndarray) -> None:
    if (window, layer) == (DEEP, 1):
        payload *= np.float32(1.1)


@pytest.mark.spec(44, 64)
@pytest.mark.fault("F31")
def test_who_altered_a_deep_layer_is_accused_once_the_model_is_calibrated(tmp_path: Path) -> None:
    source = save_model(tmp_path / "models" / "tiny")
    (tmp_path / "tiny.model").write_text(f'source = "{source}"\ndtype = "float32"\n')
    asked = Asked(tmp_path, 1, NUM)
    with gliads(2) as (liar, node):
        for each in (liar, node):
            file = each.data_dir / "glia.toml"
            file.write_text(f'models_dir = "{tmp_path}"\n{file.read_text()}')
        start(liar)
        true = asked.of(liar, "--public")
        published(liar, (NUM - 1) // 16)
        liar("stop")
        chain = poison(liar.data_dir, WindowId(bytes.fromhex(true["tip"])), deep)
        address = start(liar)
        neuron = liar.json("id")["neuron"]

        start(node, address)
        Asked(tmp_path, 2, 20).of(node)  # its engine runs before anything is measured
        told = node.json("audit", "--calibrate", "tiny", "--windows", "64")
        assert (told["dtype"], told["windows"]) == ("float32", 64)
        kept = json.loads(Path(told["path"]).read_bytes())
        assert len(kept["layers"]) == len(told["limits"]["whole"]) == 2
        assert 0 < max(told["limits"]["common"][1]) < 1e-4

        assert node.json("fetch", chain[-1].window_id.hex())["windows"] == len(chain)
        asked.of(node)
        if not node.counted("audits_false"):  # it was not drawn
            audited = node.json("audit", chain[DEEP].window_id.hex())
            assert audited["calibrated"] is True
            (found,) = audited["found"]
            assert (found["finding"]["verdict"], found["finding"]["layer"]) == ("false", 1)
            assert audited["counts"] == {"clean": DEEP, "false": 1}
        (about,) = node.json("trust", neuron)
        assert about["word"] == "never"
        assert about["caught_s"] > 0
        again = asked.of(node)
        assert again["token_ids"] == true["token_ids"]
        assert again["usage"]["cached"]["peers"] == 0

        # A file that is damaged is as none: the next engine says so, and nobody is accused.
        Path(told["path"]).write_text("{")
        node("stop")
        start(node, address)
        asked.of(node)
        assert "not a calibration" in (node.data_dir / "gliad.log").read_text()
        refused = node("audit", "--calibrate", "none", code=2).stderr
        assert "no model is called" in refused
