"""F40: mutants of the encodings and hashes; the vectors and the identity properties kill each.

A mutant is a copy of glia.graph with one piece of text replaced. The checks run on it
in a process of its own, in the directory of the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.fault("F40")

ROOT = Path(__file__).parents[2]
COPIED = ("glia/__init__.py", "glia/errors.py", "glia/graph", "tests/__init__.py")
BUILDER = (
    "simulations/__init__.py",
    "simulations/virtual/__init__.py",
    "simulations/virtual/chains.py",
)
CHECKS = (
    "tests/builders.py",
    "tests/vectors",
    "tests/unit/test_vectors.py",
    "tests/property/conftest.py",
    "tests/property/test_identity.py",
    "tests/property/test_chain_properties.py",
)

MUTANTS = {
    "block: no model": ("block.py", "fixed + model_id + profile", "fixed + bytes(32) + profile"),
    "block: no profile": ("block.py", "model_id + profile.profile_id", "model_id + bytes(32)"),
    "block: no previous block": ("block.py", " + prev + pack", " + bytes(32) + pack"),
    "block: no tokens": ("block.py", "+ pack_tokens(tokens)", "+ bytes(4 * len(tokens))"),
    "block: last token ignored": (
        "block.py",
        "+ pack_tokens(tokens)",
        "+ pack_tokens((*tokens[:-1], 0))",
    ),
    "block: tokens before the previous block": (
        "block.py",
        "prev + pack_tokens(tokens)",
        "pack_tokens(tokens) + prev",
    ),
    "block: model and profile swapped": (
        "block.py",
        "model_id + profile.profile_id",
        "profile.profile_id + model_id",
    ),
    "block: no layer": ("block.py", "        shape.layer,\n", "        0,\n"),
    "block: heads and dim swapped": (
        "block.py",
        "        shape.kv_heads,\n        shape.head_dim,\n",
        "        shape.head_dim,\n        shape.kv_heads,\n",
    ),
    "block: no anchor": (
        "block.py",
        "        0,\n        position_anchor,",
        "        0,\n        0,",
    ),
    "block: big-endian": ("block.py", '"<4sHBBHHHHIIQ"', '">4sHBBHHHHIIQ"'),
    "window: no previous window": ("window.py", "profile_id + self.prev", "profile_id + bytes(32)"),
    "window: no class": ("window.py", "+ name + self.proof", "+ bytes(len(name)) + self.proof"),
    "window: last block ignored": (
        "window.py",
        'b"".join(self.blocks)',
        'b"".join(self.blocks[:-1]) + bytes(32)',
    ),
    "window: no position": ("window.py", "            self.position_start,\n", "            0,\n"),
    "window: no model": ("window.py", "ids = self.model_id +", "ids = bytes(32) +"),
    "tokens: 16 bits": ("tokens.py", "*tokens)", "*(token & 0xFFFF for token in tokens))"),
    "profile: no position mode": ("profile.py", "self.scheme, self.mode,", "self.scheme, 1,"),
    "profile: last layer ignored": (
        "profile.py",
        "for s in self.layers)",
        "for s in self.layers[:-1])",
    ),
    "profile: context of prefix keys": ("profile.py", "v1 profile", "v1 prefix"),
    "ids: digest cut to 16 bytes": (
        "ids.py",
        "blake3(particle).digest()",
        "blake3(particle).digest(length=16) + bytes(16)",
    ),
    "ids: half of the particle hashed": (
        "ids.py",
        "blake3(particle).digest()",
        "blake3(bytes(particle)[: len(particle) // 2]).digest()",
    ),
    "ids: no layer in genesis": ("ids.py", 'layer.to_bytes(2, "little")', "bytes(2)"),
    "ids: genesis without profile": (
        "ids.py",
        "_GENESIS_WINDOW, model_id + profile_id",
        "_GENESIS_WINDOW, model_id",
    ),
    "ids: prefix keys do not chain": ("ids.py", "prev + token_bytes", "token_bytes"),
    "ids: contexts alike": (
        "ids.py",
        '"glia 2026 v1 genesis window"',
        '"glia 2026 v1 genesis prefix"',
    ),
    "chain: keys miss the last window": ("chain.py", "len(data) - step + 1", "len(data) - step"),
}


def run_checks(root: Path) -> int:
    """Exit status of the first of the checks that fails on the glia.graph below `root`, or 0."""
    environment = {
        "PYTHONPATH": str(root),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
    }
    for part in ("tests/unit", "tests/property"):
        result = subprocess.run(
            [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", part],
            cwd=root,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if result.returncode:
            print(result.stdout)
            return result.returncode
    return 0


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with the graph, its checks and pytest's settings."""
    for name in (*COPIED, *BUILDER, *CHECKS):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n"
        "markers =\n    spec\n    fault\n"
    )
    return tmp_path


def test_the_checks_pass_on_the_graph_itself(copy: Path) -> None:
    assert run_checks(copy) == 0


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_mutant_is_killed(copy: Path, mutant: tuple[str, str, str]) -> None:
    name, old, new = mutant
    path = copy / "glia/graph" / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert run_checks(copy) == 1  # a check failed; any other status: nothing was checked
