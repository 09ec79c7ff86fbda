"""The import diagram holds, and the test of it finds what it should."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.architecture import ROOT, faults_of, read_sources

SOURCES = read_sources()


@pytest.mark.spec(34)
def test_the_diagram_holds() -> None:
    assert faults_of(SOURCES) == []


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("glia.graph.ids", "import torch", "another part's library"),
        ("glia.graph.ids", "import os", "not pure"),
        ("glia.graph.ids", "from glia.store.base import Store", "not below it"),
        ("glia.errors", "from glia.graph import ids", "not below it"),
        ("glia.store.base", "import trio", "another part's library"),
        ("glia.store.base", "from daemon.paths import NodePaths", "not below it"),
        ("glia.local.frames", "import plyvel", "another part's library"),
        ("glia.model.read", "import torch.nn", "another part's library"),
        ("glia.model.read", "import transformers", "another part's library"),
        ("glia.client", "import torch", "another part's library"),
        ("glia.kv.pool", "from glia.graph.ids import BlockId", "not below it"),
        ("glia.kv.pool", "from glia.graph import window", "not below it"),
        ("glia.kv.pool", "import glia.graph.block", "not below it"),
        ("glia.engine.engine", "from glia.store import base", "not below it"),
        ("glia.engine.engine", "from daemon.config import Config", "not below it"),
        ("glia.engine.engine", "import trio", "another part's library"),
        ("daemon.config", "import torch", "another part's library"),
        ("daemon.config", "from glia.engine import engine", "not below it"),
        ("daemon.config", "from glia.kv.pool import Pool", "not below it"),
        ("daemon.config", "import tests.builders", "another part's library"),
        ("daemon.config", "import asyncio", "another part's library"),
        ("daemon.config", "import starlette", "another part's library"),
        ("daemon.door.app", "from daemon.node import main", "not below it"),
        ("daemon.config", "from . import paths", "relative"),
        ("daemon.config", "def f():\n    import json", "inside a function"),
        ("daemon.config", "class A:\n    def f(self):\n        from glia import errors", "inside"),
        ("glia.store.base", "nursery = trio.open_nursery()", "opens a nursery"),
    ],
)
def test_planted_faults_are_found(module: str, line: str, why: str) -> None:
    faults = faults_of({module: f"{SOURCES[module]}\n{line}\n"})
    assert any(fault.startswith(module) and why in fault for fault in faults)


def test_simulations_need_no_tests() -> None:
    """Tests may need simulations."""
    found = re.compile(r"^\s*(from|import) tests\b", re.MULTILINE)
    files = (ROOT / "simulations").rglob("*.py")
    assert [file for file in files if found.search(file.read_text(encoding="utf-8"))] == []


def test_a_planted_cycle_is_found() -> None:
    tail = "\nfrom glia.graph.chain import walk\n"
    faults = faults_of(SOURCES | {"glia.graph.ids": SOURCES["glia.graph.ids"] + tail})
    assert any(fault.startswith("cycle: ") and "glia.graph.chain" in fault for fault in faults)


def loaded_by(modules: list[str]) -> set[str]:
    """Top-level names in sys.modules after a fresh process imported these modules."""
    code = "import sys, importlib\n"
    code += "for name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "print(*{name.split('.')[0] for name in sys.modules})"
    result = subprocess.run(
        [sys.executable, "-c", code, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def modules_in(*parts: str) -> list[str]:
    # __main__ runs on import
    return [
        name
        for name in SOURCES
        if any(name == part or name.startswith(part + ".") for part in parts)
        and not name.endswith("__main__")
    ]


def test_gliad_and_its_clients_never_load_torch() -> None:
    parts = ("daemon", "glia.model", "glia.client", "glia.local", "glia.store", "glia.graph")
    assert not loaded_by(modules_in(*parts)) & {"torch", "transformers", "accelerate"}


def test_gliad_never_loads_a_tokenizer() -> None:
    """Only its clients do: the command line in the user's process, the HTTP door in its own."""
    clients = modules_in("daemon.cli", "daemon.verbs", "daemon.door")
    gliad = [name for name in modules_in("daemon") if name not in clients]
    assert not loaded_by(gliad) & {"tokenizers", "jinja2", "starlette", "hypercorn"}


def test_the_graph_loads_nothing_but_blake3_and_cryptography() -> None:
    strange = loaded_by(modules_in("glia.graph", "glia.errors")) - set(sys.stdlib_module_names)
    assert strange - loaded_by([]) == {
        "glia",
        "blake3",
        "cryptography",
        "_cffi_backend",
        "_openssl",
    }


def test_the_engine_does_load_torch() -> None:
    """The probe sees what is there."""
    assert "torch" in loaded_by(["glia.kv.compute"])
