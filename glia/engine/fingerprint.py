"""The numerics class: everything that the bits of K and V may depend on, in one line.

Two engines with the same class give the same bytes for the same tokens; so whatever
chooses another kernel belongs in it (measured: another instruction set leaves 1-39 %
of the blocks equal), and what does not (threads, path, prompt cutting) stays out.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import torch

from glia.engine.linear import ROWS
from glia.graph.profile import KvScheme
from glia.kv.attention import schedule

MAX_CLASS_BYTES = 256
_OVERRIDES = (
    "ATEN_CPU_CAPABILITY",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
)
_FLAGS = (
    "amx_bf16", "amx_fp16", "amx_tile", "avx2", "avx512_bf16", "avx512_fp16", "avx512_vnni",
    "avx512f", "avx_ne_convert", "fma",
)  # fmt: skip
_IDENTITY = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")


def numerics_class(
    dtype: torch.dtype, scheme: KvScheme, device: torch.device, *, is_packed: bool
) -> str:
    """native:<schedule>,<torch>,<hardware>,<linear layers>,<dtype>,<storage>."""
    name_of_schedule = schedule(dtype, device)
    fields = [
        f"{name_of_schedule}.linear{ROWS}",
        f"torch{torch.__version__}",
        _cpu() if device.type == "cpu" else _gpu(device),
        "packed" if is_packed else "plain",
        str(dtype).removeprefix("torch."),
        f"store-{scheme.name.lower()}",
    ]
    overrides = [f"{name}={os.environ[name]}" for name in _OVERRIDES if os.environ.get(name)]
    if overrides:
        fields.append(f"env-{_digest('|'.join(overrides))}")
    name = "native:" + ",".join(fields)
    if len(name.encode()) > MAX_CLASS_BYTES:
        name = f"native:{name_of_schedule},{_digest(name)}"
    return name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _cpu() -> str:
    found = _cpuinfo()
    identity = "-".join(found[key] for key in _IDENTITY if key in found)
    flags = set(found.get("flags", found.get("Features", "")).split())
    present = "+".join(flag for flag in _FLAGS if flag in flags)
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()}.{identity}.{capability}.{present}".replace(" ", "")


def _cpuinfo() -> dict[str, str]:
    """Keys of the first processor that the kernel names."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"vendor_id": platform.processor() or "unknown"}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _gpu(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device).replace(",", " ").replace(" ", "-")
    return f"cuda{torch.version.cuda}.{name[:64]}"
