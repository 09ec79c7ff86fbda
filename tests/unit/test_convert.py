"""A GGUF file becomes a model that loads and computes the same; a bad one becomes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from glia.engine.convert import convert, converted, main
from glia.engine.load import load_model
from glia.errors import BadModelFile, ModelRefused
from tests.model_parts import run, seeded_tokens, settings

VOCAB = 260
SHAPES = {
    "token_embd.weight": (VOCAB, 32),
    "output_norm.weight": (32,),
    "output.weight": (VOCAB, 32),
    "blk.0.attn_norm.weight": (32,),
    "blk.0.ffn_norm.weight": (32,),
    "blk.0.attn_q.weight": (32, 32),
    "blk.0.attn_k.weight": (16, 32),
    "blk.0.attn_v.weight": (16, 32),
    "blk.0.attn_output.weight": (32, 32),
    "blk.0.ffn_gate.weight": (64, 32),
    "blk.0.ffn_up.weight": (64, 32),
    "blk.0.ffn_down.weight": (32, 64),
}


def write_gguf(path: Path, without: Collection[str] = (), arch: str = "llama") -> Path:
    """One layer, random, with a byte tokenizer."""
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), arch)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("gpt2")
    letters = [*map(chr, range(33, 127)), *map(chr, range(256, 415))]
    writer.add_token_list(["<s>", "</s>", "<unk>", *letters, "ab", "cd", "Ga", "Gb"])
    writer.add_token_types([3, 3, 2, *[1] * (VOCAB - 3)])
    writer.add_token_merges(["a b", "c d"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    for name, shape in SHAPES.items():
        values = random.standard_normal(shape) * 0.3 + (len(shape) == 1)
        if name not in without:
            writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def silent(_done: int, _total: int) -> None:
    """Nobody asked."""


def test_the_conversion_loads_and_has_the_logits_of_the_gguf_file(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf")
    told: list[tuple[int, int]] = []
    convert(source, tmp_path / "out", lambda *step: told.append(step))
    assert told == [(step, 4) for step in range(5)]
    tokens = seeded_tokens(40, VOCAB)
    stock = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=source.name)
    with torch.inference_mode():
        expected = stock(torch.tensor([tokens])).logits[0, -1]
    ours = run(load_model(tmp_path / "out", settings()), tokens).logits[-1]
    assert (ours - expected).abs().max() <= 1e-4
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf")
    first = converted(source, tmp_path / "made", silent)
    weights = first / "model.safetensors"
    before = weights.stat()
    assert converted(source, tmp_path / "made", silent) == first
    assert weights.stat() == before
    os.utime(source, ns=(1, 1))
    assert converted(source, tmp_path / "made", silent) != first


def test_a_conversion_that_was_killed_is_made_again(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf")
    left = tmp_path / ".out.partial"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    convert(source, tmp_path / "out", silent)
    assert not left.exists()
    load_model(tmp_path / "out", settings())


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def header_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


def garbage(path: Path) -> None:
    path.write_bytes(b"\x00garbage" * 100)


def another_version(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4] = 99
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncated, header_only, garbage, another_version, empty])
def test_a_damaged_file_is_refused_and_leaves_nothing(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    source = write_gguf(tmp_path / "tiny.gguf")
    damage(source)
    with pytest.raises(BadModelFile):
        convert(source, tmp_path / "made" / "out", silent)
    assert not (tmp_path / "made" / "out").exists()
    assert not list(tmp_path.glob("made/*.partial"))


def test_a_missing_tensor_is_not_filled_with_random_numbers(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", without=["blk.0.attn_v.weight"])
    with pytest.raises(BadModelFile, match="v_proj"):
        convert(source, tmp_path / "out", silent)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / ".out.partial").exists()


def test_a_type_that_is_not_allowed_is_refused_by_its_header(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", arch="mamba")
    with pytest.raises(ModelRefused, match="mamba"):
        convert(source, tmp_path / "out", silent)


def test_the_command_says_what_is_wrong_and_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_gguf(tmp_path / "tiny.gguf")
    assert main([str(source), str(tmp_path / "out")]) == 0
    truncated(source)
    assert main([str(source), str(tmp_path / "other")]) == BadModelFile.exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert "truncated" in said.err
    assert main([]) == 2
