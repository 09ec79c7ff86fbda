"""Storage schemes as torch dtypes."""

from __future__ import annotations

import torch

from glia.graph.profile import KvScheme

STORAGE_DTYPES: dict[KvScheme, torch.dtype] = {
    KvScheme.F32: torch.float32,
    KvScheme.F16: torch.float16,
    KvScheme.BF16: torch.bfloat16,
}
