"""Forgetting with a real engine: others go on as before; what is computed again has its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from glia.client import Client
from glia.errors import NotFound
from glia.graph.ids import ModelId, WindowId
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.tokens import pack_tokens
from glia.local import messages as m
from glia.local.values import TurnValue
from tests.builders import make_chain
from tests.forget_parts import arena_hits, hits, token_sentinels
from tests.node_parts import MIB, RunningNode
from tests.tiny_node import SETTINGS, add_manifest, engine_of, prompt, save_model

PROFILE = Profile(
    16, KvScheme.F32, PositionMode.RELATIVE, tuple(LayerShape(n, 2, 16) for n in range(2))
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def node(tmp_path: Path, model: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node", SETTINGS) as running:
        add_manifest(running, model)
        yield running


def say(client: Client, tokens: Sequence[int], name: str, keep: int = 0) -> m.Generated:
    turn = TurnValue(name, keep)
    *_, last = client.generate("tiny", tokens, max_tokens=40, ignore_eos=True, turn=turn)
    assert isinstance(last, m.Generated)
    assert last.warning is None
    return last


def log_of(client: Client, name: str) -> list[int]:
    return list(client.conversation(name).tokens)


def blocks_of(client: Client, tip: bytes | None) -> list[list[bytes]]:
    return [list(window.blocks) for window in client.chain(tip or b"")]


def payload_rows(node: RunningNode, client: Client, tip: bytes | None, start: int) -> list[bytes]:
    """Rows of the second layer of a chain's windows from one on: they follow from all before."""
    engine = engine_of(client)
    assert engine is not None
    guest = node.client()
    guest.attach(
        ModelId(bytes.fromhex(engine.model_id or "")), PROFILE, engine.numerics_class or ""
    )
    names = [WindowId(window.window) for window in client.chain(tip or b"")]
    leased = guest.lease_end(guest.lease_begin(names))
    assert len(leased.tiers) == len(names)
    rows = []
    for window in range(start, len(names)):
        at = 8 * (2 * window + 1)
        offset = int.from_bytes(leased.offsets[at : at + 8], "little") + PROFILE.header_bytes
        payload = guest.arena[offset : offset + PROFILE.payload_sizes[1]]
        rows += [payload[row : row + 64] for row in range(0, len(payload), 512)]
    guest.close()
    return rows


@pytest.mark.spec(27, 32, 65)
@pytest.mark.fault("F7")
def test_the_others_next_turn_is_cached_as_before_and_the_bytes_are_nowhere(
    node: RunningNode,
) -> None:
    client = node.client()
    system = prompt(64, seed=1)
    gone = say(client, [*system, *prompt(60, seed=2)], "gone")
    kept = say(client, [*system, *prompt(60, seed=3)], "kept")
    gone_log, kept_log = log_of(client, "gone"), log_of(client, "kept")
    next_turn = [*kept_log, *prompt(20, seed=4)]
    expected = say(client, next_turn, "trial")
    expected_blocks = blocks_of(client, expected.tip)
    secrets = [*token_sentinels(gone_log, 64), *payload_rows(node, client, gone.tip, 4)]
    assert len(secrets) > 50
    gone_blocks = blocks_of(client, gone.tip)

    client.forget("trial")
    reply = client.forget("gone")

    assert (reply.num_windows, reply.num_shared) == (len(gone_log) // 16 - 4, 4)
    assert hits(node.data_dir, secrets) == {}
    assert arena_hits(client, secrets) == 0
    again = say(client, next_turn, "kept", keep=len(kept_log))
    cached = (len(kept_log) - 1) // 16 * 16  # the answer's last token is in no window yet
    assert again.usage.cached.l0 == cached
    assert again.usage.computed == len(next_turn) - cached
    assert (again.tokens, again.tip) == (expected.tokens, expected.tip)
    assert blocks_of(client, again.tip) == expected_blocks
    assert blocks_of(client, kept.tip) == expected_blocks[: len(kept_log) // 16]

    anew = say(client, gone_log[:124], "gone")  # computed again, it has its name again
    assert anew.usage.cached.l0 == 64
    assert (anew.tokens, anew.tip) == (gone.tokens, gone.tip)
    assert blocks_of(client, anew.tip) == gone_blocks
    assert pack_tokens(gone_log[:8])
    node.stop()
    assert b"gone" not in node.log.encode()


def test_forget_while_the_other_is_answered(node: RunningNode) -> None:
    client, other = node.client(), node.client()
    system = prompt(64, seed=1)
    say(client, [*system, *prompt(60, seed=2)], "gone")
    alone = say(client, [*system, *prompt(300, seed=3)], "alone")
    turn = TurnValue("kept")
    running = client.generate(
        "tiny", [*system, *prompt(300, seed=3)], max_tokens=40, ignore_eos=True, turn=turn
    )
    while not isinstance(event := next(running), m.Emitted):
        assert isinstance(event, m.Progress)
    for name in ("gone", "alone"):
        other.forget(name)
    *_, last = running
    assert isinstance(last, m.Generated)
    assert (last.tokens, last.tip, last.warning) == (alone.tokens, alone.tip, None)
    assert len(client.chain(last.tip or b"")) == (64 + 300 + 39) // 16


@pytest.mark.spec(27)
def test_what_only_an_engine_had_is_forgotten_too(tmp_path: Path, model: Path) -> None:
    """Evicted from L1 and L2 it has a name there that nobody could tell the engine."""
    l2 = {"l2": {"size_bytes": MIB, "segment_bytes": MIB}}
    with RunningNode(tmp_path / "node", {**SETTINGS, **l2}) as node:
        add_manifest(node, model)
        client, author = node.client(), node.author()
        gone = say(client, prompt(160, seed=2), "gone")
        for seed in range(8):
            author.seal(make_chain(60, seed=seed))
            client.evict("l1")
        with pytest.raises(NotFound):
            client.chain(gone.tip or b"")
        kept = say(client, prompt(80, seed=3), "kept")
        assert client.status().tiers["l0"].windows == (160 + 39) // 16 + (80 + 39) // 16

        reply = client.forget("gone")

        assert reply.num_windows < (160 + 39) // 16
        assert client.status().tiers["l0"].windows == (80 + 39) // 16
        again = say(client, log_of(client, "kept"), "kept", keep=80 + 40)
        assert again.usage.cached.l0 == (80 + 39) // 16 * 16
        assert kept.tip != again.tip
