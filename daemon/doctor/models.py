"""Which models can be found, and whether their files can be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from daemon.doctor.finding import Finding, Subject
from glia.errors import GliaError
from glia.graph.manifest import parse_manifest
from glia.graph.toml import MAX_FILE_BYTES
from glia.model.files import inspect_source
from glia.model.read import read_bounded

_MAX_MODELS = 1000


def look(subject: Subject) -> Iterator[Finding]:
    """Manifests by name in the data dir and the models dir, and directories without one."""
    sources = dict(_sources(subject))
    if not sources:
        found = f"none in {subject.config.models_dir}"
        yield Finding("models", "warn", found, "gliad models add NAME PATH")
    for name, path in sorted(sources.items())[:_MAX_MODELS]:
        yield _model(name, path)


def _sources(subject: Subject) -> Iterator[tuple[str, Path]]:
    """Name, and its manifest or directory; the first of a name counts, so it comes last."""
    models_dir = subject.config.models_dir
    for path in models_dir.glob("*/config.json"):
        yield path.parent.name, path.parent
    for directory in (models_dir, subject.paths.models):
        for path in directory.glob("[!.]*.model"):
            yield path.stem, path


def _model(name: str, path: Path) -> Finding:
    what = f"model {name}"
    try:
        source = path if path.is_dir() else _source(path)
        found = inspect_source(source)
    except GliaError as error:
        return Finding(what, "warn", error.message, error.hint or f"ls -l {path}")
    if source.is_dir():
        closed = [file.name for file in source.iterdir() if not os.access(file, os.R_OK)]
        if closed:
            return Finding(what, "warn", f"{closed[0]} cannot be read", f"chmod u+r {source}/*")
    return Finding(what, "ok", f"{found.model_type}, {source}")


def _source(manifest: Path) -> Path:
    parsed = parse_manifest(read_bounded(manifest, MAX_FILE_BYTES), str(manifest))
    return manifest.parent / parsed.source
