"""Who has how much of a prompt: which of a model's kinds peers are asked about."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
import trio

from daemon.attachments import Attachments
from daemon.data_dir import prepare
from daemon.models_registry import ModelsRegistry
from daemon.paths import Paths
from daemon.peering import Peering
from daemon.whereabouts import where
from glia.errors import BadRequest
from glia.graph.ids import ModelId
from glia.local import messages as m
from glia.local import values
from p2p.host import PeerId
from tests.builders import CLASS, MODEL, TINY, make_tokens

OTHER_MODEL = ModelId(b"\7" * 32)


@dataclass
class Nobody:
    """A network without a peer, that keeps what it was asked about."""

    asked: list[ModelId] = field(default_factory=list)

    def peers_of(self, model_id: ModelId) -> list[PeerId]:
        self.asked.append(model_id)
        return []


def attach_of(model_id: ModelId, dtype: str) -> m.Attach:
    shapes = [values.ShapeValue(s.layer, s.kv_heads, s.head_dim) for s in TINY.layers]
    profile = values.ProfileValue(TINY.block_size, TINY.scheme, TINY.mode, shapes)
    return m.Attach(1, model_id, profile, CLASS, serves="echo", dtype=dtype)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path / "node")
    prepare(found)
    (tmp_path / "echo.model").write_text('source = "files"\n')
    return found


def ask(
    network: Nobody, attachments: Attachments, paths: Paths, dtype: str | None = None
) -> m.WhereReply:
    registry = ModelsRegistry(paths, paths.data_dir.parent)
    call = m.Where(1, "echo", list(make_tokens(70)), dtype)
    return trio.run(where, cast(Peering, network), attachments, registry, call)


def test_peers_are_asked_of_the_model_in_the_dtype_that_is_asked_for(paths: Paths) -> None:
    attachments, network = Attachments(paths.attachments), Nobody()
    attachments.remember(attach_of(MODEL, "bfloat16"), None)
    with pytest.raises(BadRequest, match="never loaded here in float32") as raised:
        ask(network, attachments, paths, "float32")
    assert raised.value.hint == "gliad run echo --dtype float32 first"
    attachments.remember(attach_of(OTHER_MODEL, "float32"), None)
    ask(network, attachments, paths, "float32")
    ask(network, attachments, paths)
    assert network.asked == [OTHER_MODEL, MODEL]
    with pytest.raises(BadRequest, match="no dtype"):
        ask(network, attachments, paths, "float13")


def test_peers_are_asked_of_the_model_in_its_own_dtype(paths: Paths) -> None:
    """Not in the one that some other run was told to load it in, later."""
    attachments, network = Attachments(paths.attachments), Nobody()
    attachments.remember(attach_of(OTHER_MODEL, "float32"), None)
    with pytest.raises(BadRequest, match="never loaded"):
        ask(network, attachments, paths)
    attachments.remember(attach_of(MODEL, "bfloat16"), None)
    attachments.remember(attach_of(OTHER_MODEL, "float32"), None)
    assert ask(network, attachments, paths).num_asked == 0
    assert network.asked == [MODEL]
