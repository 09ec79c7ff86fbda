"""Kernels that are compiled for each shape do not pile up in an engine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import sys
from glia.engine.__main__ import prepare
if sys.argv[1] == "prepared":
    prepare()
import torch
from glia.engine.linear import RowLinear, pack
torch.set_num_threads(1)

def resident_mib():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) >> 10

weight = torch.zeros(3072, 576, dtype=torch.bfloat16)
linear = RowLinear(weight, None)
x = torch.zeros(1024, 576, dtype=torch.bfloat16)
for rows in range(4, 512, 4):
    linear(x[:rows])
before = resident_mib()
for rows in range(512, 1024, 4):
    linear(x[:rows])
print(int(linear.is_packed), resident_mib() - before)
"""


def _growth_mib(how: str) -> int:
    environment = {k: v for k, v in os.environ.items() if "CACHE_CAPACITY" not in k}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, how],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    is_packed, grown = map(int, done.stdout.split())
    if not is_packed:
        pytest.skip("this torch packs nothing")
    return grown


def test_rows_of_every_number_do_not_grow_the_engine() -> None:
    assert _growth_mib("prepared") < 64 < _growth_mib("as torch has it")
