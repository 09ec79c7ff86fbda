"""Cold, warm from each tier, forked, resumed: the same tokens and the same names.

Real model, real engine processes, real gliads. Equal tips say more than equal tokens: a tip's
name commits to every K and V byte of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from glia.local import messages as m
from simulations.bench.node import Node

ROOT = Path(__file__).resolve().parents[2]
MODEL_DIR = ROOT / "models" / "smollm2"
MODEL = "smollm2"
LENGTHS = (15, 16, 17, 255, 256, 257, 4000)
NUM_NEW = 12
SETTINGS = '[l0]\nsize = "384MiB"\n[l1]\nsize = "384MiB"\n[l2]\nsize = "2GiB"\n'


@pytest.fixture(scope="module")
def text() -> list[int]:
    pages = sorted((ROOT / "glia" / "spec").glob("*.md"))
    words = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    tokens: list[int] = tokenizer.encode(words, add_special_tokens=False).ids
    assert len(tokens) > 5000
    return tokens


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("exact") / "warm", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Another node, for runs that must be cold."""
    with Node(tmp_path_factory.mktemp("exact") / "cold", SETTINGS) as running:
        yield running


def whole(num_tokens: int) -> int:
    """Prompt tokens in windows that may be cached: the last token never is."""
    return (num_tokens - 1) // 16 * 16


def assert_adds_up(run: m.Generated, num_prompt: int) -> None:
    cached = run.usage.cached
    parts = cached.l0 + cached.l1 + cached.l2 + cached.peers + run.usage.computed
    assert parts == run.usage.prompt_tokens == num_prompt


@pytest.mark.spec(9)
def test_f32_greedy_tokens_equal_stock_transformers(node: Node, text: list[int]) -> None:
    stock = AutoModelForCausalLM.from_pretrained(
        MODEL_DIR, dtype=torch.float32, local_files_only=True
    ).eval()
    for length in LENGTHS:
        prompt = text[:length]
        run = node.run(MODEL, prompt, max_tokens=NUM_NEW, dtype="float32")
        out = stock.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, length, dtype=torch.long),
            max_new_tokens=NUM_NEW,
            min_new_tokens=NUM_NEW,
            do_sample=False,
            pad_token_id=0,
        )
        assert run.tokens == out[0, length:].tolist(), length


@pytest.mark.spec(12, 20, 24, 51, 70)
@pytest.mark.parametrize("length", LENGTHS)
def test_bf16_every_tier_gives_the_cold_answer_and_the_cold_names(
    node: Node, text: list[int], length: int
) -> None:
    prompt = [7 + length, *text[1:length]]  # nothing shared with another case
    cold = node.run(MODEL, prompt, max_tokens=NUM_NEW)
    assert_adds_up(cold, length)
    assert cold.usage.computed == length
    for tier, emptied in (("l0", ()), ("l1", ("l0",)), ("l2", ("l0", "l1"))):
        node.evict(*emptied)
        warm = node.run(MODEL, prompt, max_tokens=NUM_NEW)
        assert_adds_up(warm, length)
        assert getattr(warm.usage.cached, tier) == whole(length), tier
        assert (warm.tokens, warm.tip) == (cold.tokens, cold.tip), tier
    assert (cold.tip is None) == (length + NUM_NEW - 1 < 16)


@pytest.mark.spec(6, 11, 20)
def test_forked_and_resumed_after_a_restart_equal_a_cold_run_elsewhere(
    node: Node, fresh: Node, text: list[int]
) -> None:
    trunk = [3, *text[1:700]]
    first = node.run(MODEL, trunk, max_tokens=NUM_NEW)
    fork = trunk[:400] + text[2000:2100]
    resumed = trunk + first.tokens + text[3000:3040]
    forked = node.run(MODEL, fork, max_tokens=NUM_NEW)
    assert forked.usage.cached.l0 == 400
    node.stop()
    node.start()
    again = node.run(MODEL, resumed, max_tokens=NUM_NEW)
    # Decoded windows were named too: the answer is cached as well as the prompt.
    assert again.usage.cached.l2 == whole(len(trunk) + len(first.tokens))
    for run, prompt in ((forked, fork), (again, resumed)):
        alone = fresh.run(MODEL, prompt, max_tokens=NUM_NEW)
        assert alone.usage.computed >= len(prompt) - 400
        assert (alone.tokens, alone.tip) == (run.tokens, run.tip)
