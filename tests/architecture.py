"""The import diagram (DESIGN section 8) as data, and the faults of a tree against it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHIPPED = ("glia", "daemon", "p2p")

_ENGINE = (
    "glia.allocator", "glia.errors", "glia.graph", "glia.kv", "glia.local", "glia.client",
    "glia.model", "glia.engine",
)  # fmt: skip

# part: what it may import of ours; the longest part that a module's name starts with counts
ALLOWED: dict[str, tuple[str, ...]] = {
    "glia": (),
    "glia.allocator": (),
    "glia.errors": (),
    "glia.graph": ("glia.errors", "glia.graph"),
    "glia.store": ("glia.errors", "glia.graph", "glia.store"),
    "glia.local": ("glia.errors", "glia.graph", "glia.local"),
    "glia.client": ("glia.errors", "glia.graph", "glia.local", "glia.client"),
    "glia.model": ("glia.errors", "glia.graph", "glia.model"),
    "glia.kv": ("glia.errors", "glia.graph.profile", "glia.kv"),
    "glia.engine": _ENGINE,
    "glia.engine.testing": (*_ENGINE, "glia.store"),  # an engine and a store in one process
    "daemon": (
        "glia.allocator", "glia.errors", "glia.graph", "glia.store", "glia.local",
        "glia.client", "glia.model", "p2p", "daemon",
    ),
    "p2p": ("glia.errors", "glia.graph", "p2p"),
    "daemon.door": (  # a process of its own, and a client as any other
        "glia.errors", "glia.graph", "glia.local", "glia.client", "glia.model",
        "daemon.verbs.text", "daemon.verbs.turn_values", "daemon.door",
    ),
}  # fmt: skip

# modules that import in a function: OpenMP reads its environment once, so it must be set before;
# libp2p takes 50 MiB, which a node that is offline does not spend
LATE = ("glia.engine.__main__", "daemon.joining")

# a library: the parts that may import it
ONLY_IN: dict[str, tuple[str, ...]] = {
    "plyvel": ("glia.store",),
    "trio": ("daemon", "p2p"),
    "libp2p": ("p2p.libp2p",),
    "multiaddr": ("p2p.libp2p",),
    "cryptography": ("glia.graph", "p2p"),
    "torch": ("glia.kv", "glia.engine"),
    "transformers": ("glia.engine",),
    "accelerate": ("glia.engine",),
    "safetensors": ("glia.engine",),
    "gguf": ("glia.engine", "glia.model"),
    "numpy": ("glia.kv", "glia.engine"),
    "tokenizers": ("glia.model",),
    "jinja2": ("glia.model",),
    "starlette": ("daemon.door",),
    "hypercorn": ("daemon.door",),
    "prometheus_client": ("daemon.door",),
    "asyncio": (),
    "tests": (),
    "simulations": (),
}

# a part: all that it may import besides ours
_VALUES = ("__future__", "collections", "dataclasses", "enum", "functools", "itertools", "types")
PURE: dict[str, tuple[str, ...]] = {
    "glia.graph": (
        *_VALUES,
        "base64",
        "binascii",
        "blake3",
        "cryptography",
        "json",
        "math",
        "re",
        "struct",
        "tomllib",
        "typing",
    ),
    "glia.allocator": ("__future__", "ctypes"),
    "glia.errors": ("__future__", "typing"),
}


@dataclass(frozen=True)
class Import:
    """One imported name: `target` is a module, or a name in one."""

    module: str
    line: int
    target: str
    nested: bool


def read_sources(root: Path = ROOT) -> dict[str, str]:
    """Module name to source, of everything shipped."""
    sources = {}
    for part in SHIPPED:
        for path in sorted((root / part).rglob("*.py")):
            words = path.relative_to(root).with_suffix("").parts
            words = words[:-1] if words[-1] == "__init__" else words
            sources[".".join(words)] = path.read_text(encoding="utf-8")
    return sources


def imports_of(module: str, tree: ast.Module) -> Iterator[Import]:
    """Every import of a module, those in functions included."""
    nested: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            nested.update(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            yield Import(module, node.lineno, target, node in nested)


def faults_of(sources: Mapping[str, str]) -> list[str]:
    """What in these modules breaks the diagram, one line each."""
    found: list[str] = []
    edges: dict[str, set[str]] = {}
    for module, source in sources.items():
        tree = ast.parse(source)
        for each in imports_of(module, tree):
            where = f"{module}:{each.line}: imports {each.target}"
            found.extend(f"{where}: {why}" for why in _faults_of_import(each))
            if (target := _module_of(each.target, sources)) not in (None, module):
                edges.setdefault(module, set()).add(target)
        if not _is_in(module, ("daemon",)):
            found.extend(
                f"{module}:{node.lineno}: opens a nursery"
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and node.attr == "open_nursery"
            )
    cycle = _cycle(edges)
    return found + ([f"cycle: {' -> '.join(cycle)}"] if cycle else [])


def _faults_of_import(each: Import) -> Iterator[str]:
    top = each.target.split(".")[0]
    if each.nested and each.module not in LATE:
        yield "inside a function"
    if each.target.startswith("."):
        yield "relative"
    elif top in SHIPPED:
        if not _is_in(each.target, ALLOWED[_part_of(each.module)]):
            yield "not below it in the diagram"
    elif not _is_in(each.module, ONLY_IN.get(top, SHIPPED)):
        yield "another part's library"
    elif top not in PURE.get(_part_of(each.module), (top,)):
        yield "not pure"


def _is_in(name: str, parts: tuple[str, ...]) -> bool:
    return any(name == part or name.startswith(part + ".") for part in parts)


def _part_of(module: str) -> str:
    return max((part for part in ALLOWED if _is_in(module, (part,))), key=len)


def _module_of(target: str, sources: Mapping[str, str]) -> str | None:
    """The shipped module that an imported name is, or is in."""
    while target and target not in sources:
        target = target.rpartition(".")[0]
    return target or None


def _cycle(edges: Mapping[str, set[str]]) -> list[str]:
    """A ring of modules that import each other, or nothing."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(edges.get(module, ())):
            if ring := visit(target, [*path, module]):
                return ring
        done.add(module)
        return []

    for module in sorted(edges):
        if ring := visit(module, []):
            return ring
    return []
