"""Real gliad, real engine process, a small real model: crashes, cancels, restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
import torch

from glia.client import Client
from glia.errors import (
    BadModelFile,
    EngineDied,
    ManifestError,
    ModelRefused,
    PoolExhausted,
    PromptError,
)
from glia.local import messages as m
from glia.local import values
from tests.model_parts import save_tiny, seeded_tokens, tiny_stock
from tests.node_parts import MIB, RunningNode, until

VOCABULARY = 96
UNKNOWN = "w0"
CONTEXT = 2048
SETTINGS: dict[str, dict[str, float]] = {
    "real_engines": {},
    "l0": {"size_bytes": 4 * MIB},
    "l1": {"size_bytes": 8 * MIB, "staging_bytes": MIB, "prefault_bytes": 0},
    "engine": {"num_threads": 1, "prefill_tokens": 128},
}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of two layers whose tokens are words w0 to w95."""
    path = save_tiny(
        tmp_path_factory.mktemp("models") / "tiny", "llama", max_position_embeddings=CONTEXT
    )
    words = {f"w{n}": n for n in range(VOCABULARY)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=UNKNOWN))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.save(str(path / "tokenizer.json"))
    return path


def add_model(node: RunningNode, source: Path, name: str = "tiny", more: str = "") -> None:
    text = f'source = "{source}"\ndtype = "float32"\n{more}'
    (node.models_dir / f"{name}.model").write_text(text)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[RunningNode]:
    """One for all: each test has prompts of its own, and leaves it running."""
    with RunningNode(tmp_path_factory.mktemp("shared") / "node", SETTINGS) as running:
        add_model(running, model_dir)
        yield running


def prompt(num_tokens: int, seed: int = 0) -> list[int]:
    return [3 + token % (VOCABULARY - 3) for token in seeded_tokens(num_tokens, VOCABULARY, seed)]


def run(client: Client, tokens: list[int], max_tokens: int = 20, **how: object) -> m.Generated:
    *_, last = client.generate(
        "tiny",
        tokens,
        max_tokens=max_tokens,
        **{"ignore_eos": True, **how},  # type: ignore[arg-type]
    )
    assert isinstance(last, m.Generated)
    assert (
        last.usage.cached.l0 + last.usage.cached.l1 + last.usage.cached.l2 + (last.usage.computed)
        == last.usage.prompt_tokens
    )
    return last


def engine_pid(client: Client) -> int:
    (engine,) = (e for e in client.status().engines if e.model == "tiny")
    assert engine.pid is not None
    return engine.pid


@pytest.mark.spec(20, 24, 70)
def test_cold_then_warm_from_each_tier_then_after_a_restart(node: RunningNode) -> None:
    client = node.client()
    cold = run(client, prompt(300, 100))
    assert cold.usage.computed == cold.usage.prompt_tokens == 300
    stock = tiny_stock("llama", max_position_embeddings=CONTEXT).generate(
        torch.tensor([prompt(300, 100)]),
        attention_mask=torch.ones(1, 300, dtype=torch.long),
        max_new_tokens=20,
        min_new_tokens=20,
        do_sample=False,
        eos_token_id=None,
    )
    assert cold.tokens == stock[0, 300:].tolist()
    for tier, emptied in (("l0", ()), ("l1", ("l0",)), ("l2", ("l0", "l1"))):
        for each in emptied:
            client.evict(each)
        warm = run(client, prompt(300, 100))
        assert getattr(warm.usage.cached, tier) == 288
        assert (warm.tokens, warm.tip) == (cold.tokens, cold.tip)
    node.restart()
    warm = run(node.client(), prompt(300, 100))
    assert warm.usage.cached.l2 == 288
    assert (warm.tokens, warm.tip) == (cold.tokens, cold.tip)


@pytest.mark.spec(10)
def test_engines_of_two_nodes_give_the_same_names(
    node: RunningNode, tmp_path: Path, model_dir: Path
) -> None:
    one = node.client()
    first = run(one, prompt(300, 200))
    second_prompt = run(one, prompt(300, 200)[:200] + prompt(40, 201), 9)
    with RunningNode(tmp_path / "other", SETTINGS) as elsewhere:
        add_model(elsewhere, model_dir)
        other = elsewhere.client()
        # In another order and in other pieces: what was computed before does not matter.
        assert run(other, prompt(300, 200)[:200] + prompt(40, 201), 9).tip == second_prompt.tip
        again = run(other, prompt(300, 200))
        assert again.usage.cached.l0 == 192
        assert again.tip == first.tip
        assert again.tip is not None
        for left, right in zip(one.chain(first.tip or b""), other.chain(again.tip), strict=True):
            assert left.blocks == right.blocks


@pytest.mark.spec(25, 29, 66)
def test_an_engine_killed_in_mid_generation_loses_pins_and_no_committed_block(
    node: RunningNode,
) -> None:
    client = node.client()
    kept = run(client, prompt(300, 300))
    died = engine_pid(client)
    events = client.generate("tiny", prompt(300, 300) + prompt(9, 301), max_tokens=1000)
    for event in events:
        if isinstance(event, m.Emitted):
            break
    os.kill(died, signal.SIGKILL)
    with pytest.raises(EngineDied) as caught:
        list(events)
    assert caught.value.hint
    again = run(client, prompt(300, 300))
    assert again.usage.cached.l1 + again.usage.cached.l2 == 288
    assert (again.tokens, again.tip) == (kept.tokens, kept.tip)
    assert engine_pid(client) != died
    client.evict("l0")
    evicted = client.evict("l1")
    assert evicted.freed_windows >= 20
    assert client.status().tiers["l1"].windows == 0  # nothing is pinned, all of it was clean
    assert client.check().bad == 0


@pytest.mark.spec(65, 66)
def test_a_client_that_dies_in_mid_generation_ends_its_request(node: RunningNode) -> None:
    watcher = node.client()
    expected = run(watcher, prompt(100, 400))
    leaver = node.client()
    for event in leaver.generate("tiny", prompt(200, 402), max_tokens=1500, ignore_eos=True):
        if isinstance(event, m.Emitted):
            leaver.close()
            break
    until(lambda: all(e.num_running == 0 for e in watcher.status().engines))
    assert run(watcher, prompt(100, 400)).tokens == expected.tokens
    assert watcher.evict("l0").freed_windows > 0
    assert watcher.status().tiers["l0"].used_bytes == 0


def test_cancel_ends_a_request_and_the_engine_lives_on(node: RunningNode) -> None:
    client = node.client()
    run(client, prompt(20, 500))
    pid = engine_pid(client)
    events = client.generate("tiny", prompt(100, 500), max_tokens=1500, ignore_eos=True)
    heard = []
    for event in events:
        if isinstance(event, m.Emitted):
            heard += event.tokens
            if len(heard) == 3:
                break
    events.close()  # type: ignore[attr-defined]
    until(lambda: all(e.num_running == 0 for e in client.status().engines))
    assert run(client, prompt(100, 500), 3).tokens == heard
    assert engine_pid(client) == pid


@pytest.mark.spec(51)
def test_requests_that_come_at_once_compute_their_prefix_once(
    node: RunningNode, tmp_path: Path, model_dir: Path
) -> None:
    run(node.client(), prompt(5, 600))  # the engine is up
    system = prompt(400, 600)
    clients = [node.client() for _ in range(6)]
    streams = [
        c.generate("tiny", system + prompt(20, seed=600 + n), max_tokens=8, ignore_eos=True)
        for n, c in enumerate(clients, 1)
    ]
    heard = [next(stream) for stream in streams]  # all are under way
    assert heard
    answers = []
    for stream in streams:
        *_, last = stream
        assert isinstance(last, m.Generated)
        answers.append(last)
    assert sum(a.usage.computed for a in answers) <= 400 + 6 * 32
    with RunningNode(tmp_path / "alone", SETTINGS) as elsewhere:
        add_model(elsewhere, model_dir)
        for n, answer in enumerate(answers, 1):
            alone = run(elsewhere.client(), system + prompt(20, seed=600 + n), 8)
            assert (alone.tokens, alone.tip) == (answer.tokens, answer.tip)


def test_stop_strings_stop_tokens_and_seeds(node: RunningNode) -> None:
    client = node.client()
    full = run(client, prompt(50, 700), 30)
    text = [f"w{token}" for token in full.tokens]
    pair = " ".join(text[10:12])
    stopped = run(client, prompt(50, 700), 30, stop=[pair])
    assert stopped.finish_reason == "stop"
    assert " ".join(text[: len(stopped.tokens)]).endswith(pair)
    token = full.tokens[4]
    end = full.tokens.index(token) + 1
    assert run(client, prompt(50, 700), 30, stop_tokens=[token]).tokens == full.tokens[:end]
    how = values.SamplingValue(temperature=1.0, seed=11)
    one = run(client, prompt(50, 700), 30, sampling=how)
    client.evict("l0")
    assert run(client, prompt(50, 700), 30, sampling=how).tokens == one.tokens
    other = run(
        client, prompt(50, 700), 30, sampling=values.SamplingValue(temperature=1.0, seed=12)
    )
    assert other.tokens != one.tokens


def test_prompts_that_cannot_be_are_clear_errors(node: RunningNode) -> None:
    client = node.client()
    for tokens, error in [
        ([], PromptError),
        ([VOCABULARY], PromptError),
        (prompt(CONTEXT, 800), PromptError),
        (prompt(CONTEXT - 1, 800), None),
        (prompt(1, 800), None),
    ]:
        if error is None:
            assert len(run(client, tokens, 4).tokens) == min(4, CONTEXT - len(tokens))
            continue
        with pytest.raises(error) as caught:
            run(client, tokens)
        assert caught.value.hint


@pytest.mark.spec(26)
def test_a_sequence_larger_than_l0_is_refused_and_others_go_on(
    tmp_path: Path, model_dir: Path
) -> None:
    settings = {**SETTINGS, "l0": {"size_bytes": 600 * 1024}}
    with RunningNode(tmp_path / "node", settings) as node:
        add_model(node, model_dir)
        client = node.client()
        answer = run(client, prompt(100, 900))
        with pytest.raises(PoolExhausted) as caught:
            run(client, prompt(CONTEXT - 500, 900), 400)
        assert "size" in str(caught.value.hint)
        assert run(client, prompt(100, 900)).tokens == answer.tokens


@pytest.mark.parametrize(
    ("name", "error"), [("weights", BadModelFile), ("type", ModelRefused), ("mode", ModelRefused)]
)
def test_models_that_cannot_be_used_say_why(
    node: RunningNode, tmp_path: Path, name: str, error: type[Exception]
) -> None:
    client = node.client()
    expected = run(client, prompt(40, 1000))
    more = ""
    source = save_tiny(tmp_path / "bad", "llama")
    if name == "weights":
        weights = source / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif name == "type":
        config = (source / "config.json").read_text()
        (source / "config.json").write_text(config.replace('"llama"', '"mamba"'))
    else:
        more = '[kv]\nposition_anchor_mode = "absolute"\n'
    add_model(node, source, f"bad-{name}", more)
    with pytest.raises(error) as caught:
        list(client.generate(f"bad-{name}", prompt(20, 1000), max_tokens=2))
    assert caught.value.args[0]
    (node.models_dir / "worse.model").write_text('source = "x"\nblock_size = 5\n')
    with pytest.raises(ManifestError, match=r"worse\.model"):
        list(client.generate("worse", prompt(20, 1000), max_tokens=2))
    assert run(client, prompt(40, 1000)).tokens == expected.tokens


def test_no_token_and_no_text_is_logged(node: RunningNode) -> None:
    client = node.client()
    run(client, prompt(50, 1100), 10)
    with pytest.raises(PromptError):
        run(client, [91, 92, 93, VOCABULARY])
    node.stop()
    log = node.log
    node.restart()
    assert "91, 92" not in log
    assert str(prompt(50, 1100)[:3])[1:-1] not in log
