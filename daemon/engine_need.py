"""How much memory an engine is expected to need, before it is started.

    need = 512 MiB                        Python, torch and their buffers
         + 3 x the weights                as stored on disk, as computed with, as packed
         + [l0] size + [l1] staging_size

The weights are counted in the dtype that is computed in; a GGUF file in f32, which it is
converted to first. Measured on SmolLM2-135M: 1,203 MiB of 1,281 in bf16 and 1,622 of 2,051
in f32 (resident when ready, of what this expects without L0 and staging). Once an engine is
ready it is counted with what it says it has, and with the part of L0 it has not touched yet.

In float64, the canonical class, a model has its weights as stored on disk, and once more in
float64 where all engines together may have so much; else they are widened for every step.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import trio

from daemon.config import Config
from daemon.machine import memory_bytes
from daemon.models_registry import KnownModel
from glia.errors import GliaError
from glia.graph.manifest import CANONICAL_DTYPE
from glia.model.files import inspect_source
from glia.model.gguf import read_gguf_header
from glia.model.safetensors import read_header
from glia.model.weights import weight_files

_RUNTIME_BYTES = 512 * 1024 * 1024
_COPIES = 3
_DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_F32_BYTES = 4
_F64_BYTES = 8


def budget_bytes(config: Config) -> int:
    """What all engines together may have."""
    return config.engine.memory_bytes or memory_bytes() * 3 // 4


def wide_bytes(config: Config) -> int:
    """The most that weights in float64 may take, of what all engines together may have."""
    return max(0, budget_bytes(config) - _RUNTIME_BYTES - _later_bytes(config))


def _later_bytes(config: Config) -> int:
    """What an engine that is ready has not touched yet."""
    return config.l0.size_bytes + config.l1.staging_bytes


class Needs:
    """What engines need, with these settings."""

    def __init__(self, config: Config) -> None:
        self._later_bytes = _later_bytes(config)
        self._wide_bytes = wide_bytes(config)

    async def expected(self, model: KnownModel, dtype: str) -> int:
        """Of one that is to be started, by the headers of its files.

        Files that cannot be read count nothing: the engine says better what is wrong with them.
        """
        try:
            weights = await trio.to_thread.run_sync(self._weight_bytes, model.source, dtype)
        except GliaError:
            weights = 0
        return _RUNTIME_BYTES + weights + self._later_bytes

    def measured(self, resident_bytes: int) -> int:
        """Of one that is ready and has so much of its own."""
        return resident_bytes + self._later_bytes

    def _weight_bytes(self, source: Path, dtype: str) -> int:
        """Of all copies. Raises: BadModelFile, ModelRefused."""
        num_weights, stored_bytes = _weights(source)
        if dtype != CANONICAL_DTYPE:
            item = _F32_BYTES if inspect_source(source).kind == "gguf" else _DTYPE_BYTES[dtype]
            return _COPIES * num_weights * item
        wide = num_weights * _F64_BYTES
        return stored_bytes + (wide if wide <= self._wide_bytes else 0)


def _weights(source: Path) -> tuple[int, int]:
    """How many there are, and their bytes in safetensors."""
    if inspect_source(source).kind == "gguf":
        num_weights = read_gguf_header(source).num_weights
        return num_weights, num_weights * _F32_BYTES
    tensors = [tensor for file in weight_files(source) for tensor in read_header(file)]
    return sum(prod(t.shape) for t in tensors), sum(t.end - t.start for t in tensors)
