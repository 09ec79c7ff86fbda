"""The numerics class names what the bits depend on, and nothing else."""

from __future__ import annotations

import pytest
import torch

from glia.engine.fingerprint import MAX_CLASS_BYTES, numerics_class
from glia.graph.profile import KvScheme

CPU = torch.device("cpu")


def a_class(
    dtype: torch.dtype = torch.bfloat16,
    scheme: KvScheme = KvScheme.BF16,
    *,
    is_packed: bool = True,
) -> str:
    return numerics_class(dtype, scheme, CPU, is_packed=is_packed)


def test_it_names_schedule_torch_kernel_and_dtype() -> None:
    name = a_class()
    assert name.startswith("native:tile128.")
    for part in (torch.__version__, torch.backends.cpu.get_cpu_capability(), "bfloat16", "packed"):
        assert part in name
    assert name.isascii()
    assert " " not in name
    assert len(name.encode()) <= MAX_CLASS_BYTES
    assert name == a_class()


def test_another_dtype_storage_or_packing_is_another_class() -> None:
    names = {
        a_class(),
        a_class(torch.float16),
        a_class(scheme=KvScheme.F16),
        a_class(is_packed=False),
    }
    assert len(names) == 4


@pytest.mark.parametrize(
    "variable", ["ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR"]
)
def test_an_override_of_the_instruction_set_is_another_class(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = a_class()
    monkeypatch.setenv(variable, "AVX2")
    assert a_class() != plain
    monkeypatch.setenv(variable, "x" * 10_000)
    assert len(a_class().encode()) <= MAX_CLASS_BYTES


def test_threads_are_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = a_class()
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert a_class() == plain


def test_another_processor_is_another_class(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = a_class()
    monkeypatch.setattr("glia.engine.fingerprint._cpuinfo", lambda: {"vendor_id": "Other"})
    other = a_class()
    assert other != plain
    assert "Other" in other


def test_a_class_too_long_for_a_record_is_shortened_without_becoming_another_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = set()
    for vendor in ("a" * 400, "a" * 399 + "b"):
        monkeypatch.setattr("glia.engine.fingerprint._cpuinfo", lambda v=vendor: {"vendor_id": v})
        names.add(a_class())
    assert len(names) == 2
    assert all(len(name.encode()) <= MAX_CLASS_BYTES for name in names)
