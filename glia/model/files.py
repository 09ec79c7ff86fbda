"""What stands at a model's path: a directory or a GGUF file, checked cheaply before use.

No weight is read. What is wrong is said in words a user can act on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from glia.errors import BadModelFile, ModelRefused
from glia.model.gguf import read_gguf_header
from glia.model.model_id import CONFIG
from glia.model.read import read_json
from glia.model.safetensors import read_header
from glia.model.weights import PICKLES, weight_files


@dataclass(frozen=True)
class ModelSource:
    """A model's files as they were found.

    Attributes:
        model_type: config.json's model_type, or GGUF's general.architecture.
        context_tokens: the positional limit it declares, None where it says none.
    """

    kind: Literal["directory", "gguf"]
    path: Path
    model_type: str
    context_tokens: int | None


def inspect_source(path: Path) -> ModelSource:
    """What a model path holds.

    Raises:
        BadModelFile: missing, truncated, malformed, or a pickle.
        ModelRefused: a model that says nothing of its type.
    """
    if path.is_dir():
        return _directory(path)
    if path.suffix.lower() == ".gguf":
        return _gguf(path)
    if path.suffix.lower() in PICKLES:
        raise BadModelFile(
            f"{path}: a pickle, which can run code: refused unread",
            hint="convert it to safetensors first",
        )
    if not path.exists():
        raise BadModelFile(f"{path}: no such file or directory", hint=f"ls -l {path.parent}")
    raise BadModelFile(
        f"{path}: neither a model directory nor a .gguf file",
        hint="give the directory that has config.json, or the .gguf file",
    )


def _directory(path: Path) -> ModelSource:
    config = read_json(path / CONFIG)
    headers = [read_header(file) for file in weight_files(path)]  # all: each may be the bad one
    if not any(headers):
        raise BadModelFile(f"{path}: its weight files hold no tensors")
    return _source("directory", path, config.get("model_type"), context_tokens(config))


def _gguf(path: Path) -> ModelSource:
    header = read_gguf_header(path)
    declared = header.values.get(f"{header.model_type}.context_length")
    context = declared if isinstance(declared, int) and declared > 0 else None
    return _source("gguf", path, header.model_type, context)


def _source(
    kind: Literal["directory", "gguf"], path: Path, model_type: Any, context: int | None
) -> ModelSource:
    if not isinstance(model_type, str) or not 1 <= len(model_type) <= 64:
        raise ModelRefused(
            f"{path}: does not say what type of model it is",
            hint="its config.json needs a model_type" if kind == "directory" else None,
        )
    return ModelSource(kind, path, model_type, context)


def context_tokens(config: dict[str, Any]) -> int | None:
    """The positional limit a config.json declares, None where it says none."""
    value = config.get("max_position_embeddings")
    return value if isinstance(value, int) and value > 0 else None
