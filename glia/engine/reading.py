"""A model's weights from its directory, as transformers reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from glia.engine.adapter import merge_adapter
from glia.engine.loading_report import check_report
from glia.errors import BadModelFile
from glia.model.safetensors import read_header
from glia.model.weights import weight_files

_FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a model directory. Raises: BadModelFile."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadModelFile(f"{file}: {error}") from error
    if not isinstance(config, dict):
        raise BadModelFile(f"{file}: not a table")
    return config


def widest_dtype(path: Path) -> torch.dtype:
    """What holds every weight of a model directory without rounding.

    Raises: BadModelFile.
    """
    names = {tensor.dtype for file in weight_files(path) for tensor in read_header(file)}
    found = [_FLOATS[name] for name in names if name in _FLOATS]
    if not found:
        raise BadModelFile(f"{path}: its weights are no floating-point numbers")
    return reduce(torch.promote_types, found)


def read_exactly(path: Path, adapters: Sequence[Path]) -> PreTrainedModel:
    """Weights with the values that the files have; with adapters, in float64: a merged weight
    has no other dtype.

    Raises: BadModelFile, ModelRefused.
    """
    return read_weights(path, torch.float64 if adapters else widest_dtype(path), adapters)


def read_weights(path: Path, dtype: torch.dtype, adapters: Sequence[Path]) -> PreTrainedModel:
    """Weights in one dtype, adapters merged: safetensors only, no code of the model's own.

    Raises: BadModelFile, ModelRefused.
    """
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        read: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
            ignore_mismatched_sizes=True,  # they are in the report, with their names
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise BadModelFile(f"{path}: {error}", hint="get the model's files again") from error
    model: PreTrainedModel = read[0]
    check_report(path, read[1])
    for adapter in adapters:
        merge_adapter(model, adapter)
    model.requires_grad_(False)
    model.train(False)
    return model
