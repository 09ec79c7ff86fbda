"""The packages are those of this checkout, and nothing shipped can run foreign bytes."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture import ROOT, SHIPPED, read_sources

FORBIDDEN_MODULES = frozenset(
    ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml")
)
FORBIDDEN_CALLS = frozenset(("eval", "exec", "compile", "__import__"))
FORBIDDEN_ATTRIBUTES = frozenset(
    ("torch.load", "torch.hub", "torch.save", "os.system", "os.popen", "numpy.load", "np.load")
)
FORBIDDEN_WORDS = frozenset(("trust_remote_code", "allow_pickle", "weights_only", "shell"))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_package_imported_is_ours(name: str) -> None:
    package = import_module(name)
    assert package.__file__ is not None
    assert Path(package.__file__).resolve() == (ROOT / name / "__init__.py").resolve()


def test_every_package_is_listed_and_exists() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = settings["tool"]["setuptools"]["packages"]
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for part in SHIPPED
        for path in (ROOT / part).rglob("*.py")
    }
    assert sorted(found) == sorted(listed)


def forbidden_in(source: str) -> Iterator[str]:
    """What in a module could run code that came as data."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (n.name for n in names if n.name.split(".")[0] in FORBIDDEN_MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                if module.split(".")[0] in FORBIDDEN_MODULES:
                    yield module
                full = (f"{module}.{n.name}" for n in names)
                yield from (name for name in full if name in FORBIDDEN_ATTRIBUTES)
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield name
            case ast.Attribute() if ast.unparse(node) in FORBIDDEN_ATTRIBUTES:
                yield ast.unparse(node)
            case ast.keyword(arg=str(word), value=value) if word in FORBIDDEN_WORDS:
                if not (
                    isinstance(value, ast.Constant) and value.value is (word == "weights_only")
                ):
                    yield f"{word}={ast.unparse(value)}"


@pytest.mark.fault("F33")
def test_nothing_shipped_runs_foreign_bytes() -> None:
    found = {module: list(forbidden_in(source)) for module, source in read_sources().items()}
    assert not {module: names for module, names in found.items() if names}


@pytest.mark.fault("F33")
@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import yaml.loader",
        "from shelve import open",
        "from torch import load",
        "import marshal as m",
        "torch.load(f)",
        "x = torch.load",
        "torch.hub.load('x')",
        "eval(text)",
        "exec(text)",
        "__import__(name)",
        "np.load(f)",
        "f(allow_pickle=True)",
        "f(trust_remote_code=flag)",
        "f(weights_only=False)",
        "subprocess.run(x, shell=True)",
        "def f():\n    from pickle import loads",
    ],
)
def test_planted_uses_are_found(line: str) -> None:
    assert list(forbidden_in(line))


def test_harmless_lines_are_not_found() -> None:
    text = "model.eval()\nre.compile(x)\nf(trust_remote_code=False, weights_only=True)\nload(x)\n"
    assert list(forbidden_in(text)) == []
