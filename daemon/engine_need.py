"""How much memory an engine is expected to need, before it is started.

    need = 512 MiB                        Python, torch and their buffers
         + 3 x the weights                as stored on disk, as computed with, as packed
         + [l0] size + [l1] staging_size

The weights are counted in the dtype that is computed in; a GGUF file in f32, which it is
converted to first. Measured on SmolLM2-135M: 1,203 MiB of 1,281 in bf16 and 1,622 of 2,051
in f32 (resident when ready, of what this expects without L0 and staging). Once an engine is
ready it is counted with what it says it has, and with the part of L0 it has not touched yet.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import trio

from daemon.config import Config
from daemon.models_registry import KnownModel
from glia.errors import GliaError
from glia.model.files import inspect_source
from glia.model.gguf import read_gguf_header
from glia.model.safetensors import read_header
from glia.model.weights import weight_files

_RUNTIME_BYTES = 512 * 1024 * 1024
_COPIES = 3
_DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_F32_BYTES = 4


class Needs:
    """What engines need, with these settings."""

    def __init__(self, config: Config) -> None:
        self._later_bytes = config.l0.size_bytes + config.l1.staging_bytes

    async def expected(self, model: KnownModel, dtype: str) -> int:
        """Of one that is to be started, by the headers of its files.

        Files that cannot be read count nothing: the engine says better what is wrong with them.
        """
        try:
            weights = await trio.to_thread.run_sync(_weight_bytes, model.source, dtype)
        except GliaError:
            weights = 0
        return _RUNTIME_BYTES + _COPIES * weights + self._later_bytes

    def measured(self, resident_bytes: int) -> int:
        """Of one that is ready and has so much of its own."""
        return resident_bytes + self._later_bytes


def _weight_bytes(source: Path, dtype: str) -> int:
    if inspect_source(source).kind == "gguf":
        return read_gguf_header(source).num_weights * _F32_BYTES
    headers = (read_header(file) for file in weight_files(source))
    num_weights = sum(prod(tensor.shape) for header in headers for tensor in header)
    return num_weights * _DTYPE_BYTES[dtype]
