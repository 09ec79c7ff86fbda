"""What nobody could compute again is not evicted: a node whose model's files are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import NotFound
from tests.builders import make_tokens
from tests.forget_parts import say
from tests.integration.test_forget_node import seal_alone
from tests.model_files import write_model
from tests.node_parts import MIB, RunningNode

L2 = {"l2": {"size_bytes": MIB, "segment_bytes": MIB}}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node", L2) as running:
        yield running


def is_whole(client: Client, tip: bytes | None) -> bool:
    try:
        return bool(client.chain(tip or b""))
    except NotFound:
        return False


def fill(client: Client, most: int) -> list[bytes | None]:
    """Say something new until an answer warns; every tip, None where it was not kept."""
    tips: list[bytes | None] = []
    for seed in range(most):
        said = say(client, make_tokens(640, seed=100 + seed), f"t{seed}")
        tips.append(said.tip)
        if said.warning is not None:
            assert "nothing may be evicted" in said.warning
            break
    return tips


@pytest.mark.spec(31)
def test_what_cannot_be_had_again_stays_and_the_answer_says_what_is_not_kept(
    node: RunningNode,
) -> None:
    node.add_manifest("echo")  # its source is not there
    client, author = node.client(), node.author()
    tokens = make_tokens(640, seed=1)
    first = say(client, tokens, "first")
    for seed in range(2, 40):
        seal_alone(author, make_tokens(640, seed=seed))
    client.evict("l1")
    assert is_whole(client, first.tip)
    tips = fill(client, 100)
    assert tips.pop() is None
    assert len(tips) > 2
    client.evict("l1")
    assert all(is_whole(client, tip) for tip in (first.tip, *tips))
    assert client.conversation("t0").tokens[:640] == make_tokens(640, seed=100)
    client.forget("first")  # that makes room
    assert say(client, make_tokens(640, seed=99), "more").warning is None


@pytest.mark.spec(31)
def test_what_can_be_had_again_gives_way(node: RunningNode) -> None:
    write_model(node.models_dir / "files")
    (node.models_dir / "echo.model").write_text('source = "files"\ndtype = "float32"\n')
    client = node.client()
    first = say(client, make_tokens(640, seed=1), "first")
    tips = fill(client, 60)
    assert None not in tips
    client.evict("l1")
    assert not is_whole(client, first.tip)
    assert is_whole(client, tips[-1])
