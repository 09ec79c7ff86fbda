"""Tiny model directories, written without the libraries that read them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]  # name: dtype, shape, bytes
_ITEM = {"F32": 4, "BF16": 2, "U8": 1}

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "vocab_size": 261,
    "bos_token_id": 257,
    "eos_token_id": 258,
    "dtype": "float32",
    "use_cache": True,
    "_name_or_path": "somewhere/tiny",
    "transformers_version": "5.24.0",
}

ADAPTER_CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 4,
    "lora_dropout": 0.1,
    "target_modules": ["q_proj"],
    "base_model_name_or_path": "somewhere/tiny",
}


def seeded(label: str, dtype: str, *shape: int) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor whose bytes are BLAKE3's extended output over its label."""
    size = _ITEM[dtype]
    for length in shape:
        size *= length
    return dtype, shape, blake3(label.encode("ascii")).digest(length=size)


def tiny_tensors() -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Not a model that runs: names, shapes and bytes."""
    return {
        "model.embed_tokens.weight": seeded("embed", "F32", 261, 8),
        "model.layers.0.self_attn.q_proj.weight": seeded("q", "F32", 8, 8),
        "model.layers.0.self_attn.k_proj.weight": seeded("k", "F32", 4, 8),
        "model.norm.weight": seeded("norm", "BF16", 8),
        "model.scale": seeded("scale", "F32"),
    }


def byte_tokenizer() -> dict[str, Any]:
    """tokenizer.json of a byte-level BPE without merges: 256 bytes, <unk>, <bos>, <eos>."""
    letters = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))]
    alphabet = letters + [chr(256 + i) for i in range(256 - len(letters))]
    marks = ("<unk>", "<bos>", "<eos>")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 256 + i,
                "content": mark,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, mark in enumerate(marks)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<bos>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [257], "tokens": ["<bos>"]}},
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {letter: i for i, letter in enumerate(alphabet)},
            "merges": [],
        },
    }


def safetensors(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file, tensors in the order given."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    encoded = json.dumps(header).encode()
    body = b"".join(data for _, _, data in tensors.values())
    return struct.pack("<Q", len(encoded)) + encoded + body


def write_model(
    path: Path,
    *,
    config: Mapping[str, Any] = CONFIG,
    tensors: Tensors | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    num_shards: int = 1,
) -> Path:
    """A model directory."""
    path.mkdir(parents=True)
    tensors = tiny_tensors() if tensors is None else tensors
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer or byte_tokenizer()))
    if num_shards == 1:
        (path / "model.safetensors").write_bytes(safetensors(tensors, {"format": "pt"}))
        return path
    places = {name: f"part-{i % num_shards}.safetensors" for i, name in enumerate(tensors)}
    for file in set(places.values()):
        part = {name: tensor for name, tensor in tensors.items() if places[name] == file}
        (path / file).write_bytes(safetensors(part))
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def write_adapter(
    path: Path, *, config: Mapping[str, Any] = ADAPTER_CONFIG, seed: str = "a"
) -> Path:
    """A PEFT adapter directory."""
    path.mkdir(parents=True)
    (path / "adapter_config.json").write_text(json.dumps(config))
    tensors = {
        "base_model.model.layers.0.q.lora_A.weight": seeded(seed, "F32", 2, 8),
        "base_model.model.layers.0.q.lora_B.weight": seeded(seed + "b", "F32", 8, 2),
    }
    (path / "adapter_model.safetensors").write_bytes(safetensors(tensors))
    return path
