"""model_id: a digest of what determines K/V, and of nothing else. See spec/6-model-id.md.

Counts: architecture, every weight, the vocabulary, adapters. Does not count: paths,
names, sharding, the card, the chat template, sampling. What is unknown counts: an
unneeded difference costs a duplicate, a missed one would serve false K/V.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glia.errors import BadModelFile
from glia.graph.ids import ModelId, derive
from glia.model.canonical import encode_value
from glia.model.read import TOKENIZER_BYTES, TOKENIZER_VALUES, read_json
from glia.model.weights import Progress, TensorDigest, tensor_digests, weight_files

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

_CONTEXT = "glia 2026 v1 model"
_CONTEXT_CONFIG = "glia 2026 v1 model config"
_CONTEXT_WEIGHTS = "glia 2026 v1 model weights"
_CONTEXT_VOCABULARY = "glia 2026 v1 model vocabulary"
_CONTEXT_ADAPTER = "glia 2026 v1 model adapter"
_NONE = bytes(32)

# What config.json holds besides the architecture. Names of one kind stand together.
_NAMES = """_name_or_path _model_name_or_path _commit_hash _from_model_config name_or_path
    transformers_version finetuning_task task_specific_params tokenizer_class id2label label2id
    num_labels problem_type"""
_LOADED_AS = "dtype torch_dtype"  # the numerics class says it
_TEXT_MARKS = """bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id
    mask_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id"""
_TRAINING = """initializer_range initializer_factor attention_dropout hidden_dropout
    hidden_dropout_prob attention_probs_dropout_prob resid_pdrop embd_pdrop attn_pdrop
    classifier_dropout router_aux_loss_coef gradient_checkpointing"""
_RUNNING = """use_cache output_attentions output_hidden_states return_dict use_return_dict
    torchscript pretraining_tp chunk_size_feed_forward attn_implementation _attn_implementation
    _attn_implementation_autoset"""
_SAMPLING = """temperature top_k top_p typical_p do_sample num_beams num_beam_groups
    diversity_penalty num_return_sequences repetition_penalty length_penalty no_repeat_ngram_size
    max_length min_length max_new_tokens early_stopping bad_words_ids suppress_tokens
    begin_suppress_tokens output_scores return_dict_in_generate remove_invalid_values
    exponential_decay_length_penalty encoder_no_repeat_ngram_size"""

NOT_ARCHITECTURE = frozenset(
    " ".join([_NAMES, _LOADED_AS, _TEXT_MARKS, _TRAINING, _RUNNING, _SAMPLING]).split()
)
NOT_VOCABULARY = frozenset(("version", "truncation", "padding", "post_processor"))
NOT_ADAPTER = frozenset(
    (
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "task_type",
        "auto_mapping",
        "peft_version",
        "lora_dropout",
    )
)


def model_id(
    model_dir: Path, adapters: Sequence[Path] = (), on_progress: Progress | None = None
) -> ModelId:
    """The model's name.

    Args:
        model_dir: config.json, safetensors weights, tokenizer.json if there is one.
        adapters: PEFT adapter directories, in the order they are applied.
        on_progress: called with (bytes done, bytes in all) while weights are hashed.
    Raises: BadModelFile.
    """
    config = read_json(model_dir / CONFIG)
    parts = [
        b"GMOD" + struct.pack("<HH", 1, len(adapters)),
        config_digest(config),
        _weights(weight_files(model_dir), bool(config.get("tie_word_embeddings")), on_progress),
        _vocabulary(model_dir / TOKENIZER),
        *(_adapter(adapter) for adapter in adapters),
    ]
    return ModelId(derive(_CONTEXT, b"".join(parts)))


def involved_files(model_dir: Path, adapters: Sequence[Path] = ()) -> list[Path]:
    """Every file that model_id reads, in a fixed order.

    Raises: BadModelFile where one that must be there is missing.
    """
    tokenizer = model_dir / TOKENIZER
    return [
        model_dir / CONFIG,
        *weight_files(model_dir),
        *([tokenizer] if tokenizer.exists() else []),
        *(adapter / name for adapter in adapters for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)),
    ]


def config_digest(config: dict[str, Any]) -> bytes:
    """Digest of the architecture: config.json, and the `*_config` objects in it, less what
    cannot change K/V."""
    return derive(_CONTEXT_CONFIG, encode_value(_architecture(config)))


def _architecture(config: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in NOT_ARCHITECTURE}
    for key, value in kept.items():
        # How weights are to be dequantised is no sub-model: it counts whole.
        if key.endswith("_config") and key != "quantization_config" and isinstance(value, dict):
            kept[key] = {k: v for k, v in value.items() if k not in NOT_ARCHITECTURE}
    return kept


def _weights(files: Sequence[Path], tied: bool, on_progress: Progress | None) -> bytes:
    digests = tensor_digests(files, on_progress)
    if not digests:
        raise BadModelFile(f"{files[0]}: holds no tensors")
    if tied:
        digests = _less_tied_copies(digests)
    return derive(_CONTEXT_WEIGHTS, b"".join(digest.encode() for digest in digests))


def _less_tied_copies(digests: Sequence[TensorDigest]) -> list[TensorDigest]:
    """A tied output head may be written once or twice: the copy does not count."""
    bodies = {(d.dtype, d.shape, d.digest) for d in digests if not _is_head(d)}
    return [d for d in digests if not (_is_head(d) and (d.dtype, d.shape, d.digest) in bodies)]


def _is_head(digest: TensorDigest) -> bool:
    return digest.name.split(".")[-2:] == ["lm_head", "weight"]


def _vocabulary(path: Path) -> bytes:
    if not path.exists():
        return _NONE
    tokenizer = read_json(path, TOKENIZER_BYTES, TOKENIZER_VALUES)
    kept = {key: value for key, value in tokenizer.items() if key not in NOT_VOCABULARY}
    return derive(_CONTEXT_VOCABULARY, encode_value(kept))


def _adapter(adapter: Path) -> bytes:
    config = read_json(adapter / ADAPTER_CONFIG)
    kept = {key: value for key, value in config.items() if key not in NOT_ADAPTER}
    encoded = encode_value(kept)
    tensors = tensor_digests([adapter / ADAPTER_WEIGHTS])
    return derive(
        _CONTEXT_ADAPTER,
        struct.pack("<I", len(encoded)) + encoded + b"".join(d.encode() for d in tensors),
    )
