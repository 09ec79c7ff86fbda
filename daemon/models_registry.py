"""Which models this node knows by name: manifests in the data dir, then in the models dir.

A directory in the models dir that holds a model and has no manifest counts with defaults.
Loads nothing: what only a loaded model tells (model_id, context) is remembered from the
last time it was. Where the file of that is lost, it follows from what engines attached with.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from daemon.paths import Paths
from glia.errors import BadRequest, GliaError, ManifestError, StoreBroken, UnknownModel
from glia.graph.ids import digest
from glia.graph.manifest import Manifest, format_manifest, parse_manifest
from glia.graph.toml import MAX_FILE_BYTES
from glia.local.messages import Attach
from glia.local.values import ModelValue
from glia.model.files import inspect_source

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUFFIX = ".model"
_log = logging.getLogger("gliad.models")


@dataclass(frozen=True)
class KnownModel:
    """A manifest by name.

    Attributes:
        path: the manifest's file, which an engine is given.
        text: its TOML.
    """

    name: str
    path: Path
    text: str
    manifest: Manifest

    @property
    def source(self) -> Path:
        """The model's directory or GGUF file."""
        return (self.path.parent / self.manifest.source).absolute()


class _Fact(msgspec.Struct, frozen=True):
    """What a model was seen to be when it was loaded. `manifest`: digest of its TOML, hex."""

    manifest: str
    model_id: str
    context_tokens: int
    files_dir: str


_facts_decoder = msgspec.json.Decoder(dict[str, _Fact])


class ModelsRegistry:
    """Names and manifests. Reads the directories anew each time: they are the user's.
    What models were seen to be is read once: only gliad writes it.

    The data dir's models directory exists (daemon.data_dir makes it).
    """

    def __init__(self, paths: Paths, models_dir: Path) -> None:
        self._dir = paths.models
        self._models_dir = models_dir
        self._facts_path = self._dir / "facts.json"
        self._implied_dir = self._dir / "implied"
        self._implying = threading.Lock()
        self._facts = self._read_facts()

    def get(self, name: str) -> KnownModel:
        """The model of a name. Raises: UnknownModel, ManifestError."""
        if _NAME.fullmatch(name):
            for directory in (self._dir, self._models_dir):
                path = directory / f"{name}{_SUFFIX}"
                if path.is_file():
                    return _read(name, path)
            if (self._models_dir / name / "config.json").is_file():
                return self._implied(name)
        raise UnknownModel(f"no model is called {name[:80]!r} here", hint="gliad models")

    def values(self) -> list[ModelValue]:
        """All models whose manifests can be read, by name."""
        values: list[ModelValue] = []
        for name in sorted(self._names()):
            try:
                values.append(self.value(name))
            except GliaError as error:
                _log.warning("model %s: %s", name, error)
        return values

    def known(self) -> list[KnownModel]:
        """All models whose manifests can be read."""
        models: list[KnownModel] = []
        for name in self._names():
            with suppress(GliaError):
                models.append(self.get(name))
        return models

    def value(self, name: str) -> ModelValue:
        """One model as `models` shows it. Raises: UnknownModel, ManifestError."""
        return _value(self.get(name), self._facts.get(name))

    def stage(self, name: str, text: str, *, replace: bool) -> KnownModel:
        """A manifest that is to become known, written where an engine can read it.

        Raises: BadRequest (name not allowed or taken), ManifestError.
        """
        if not _NAME.fullmatch(name):
            raise BadRequest(
                f"not a model name: {name[:80]!r}", hint="letters, digits, . _ - and at most 64"
            )
        manifest = parse_manifest(text, f"{name}{_SUFFIX}")
        if not replace and name in self._names():
            raise BadRequest(f"there is a model called {name} already", hint="add --replace")
        path = self._dir / f".{name}{_SUFFIX}.new"
        write_whole(path, text.encode())
        return KnownModel(name, path, text, manifest)

    def commit(self, staged: KnownModel) -> KnownModel:
        """A staged manifest is known from now on."""
        path = self._dir / f"{staged.name}{_SUFFIX}"
        try:
            os.replace(staged.path, path)
        except OSError as error:
            raise _refused(path, error) from error
        return KnownModel(staged.name, path, staged.text, staged.manifest)

    def discard(self, staged: KnownModel) -> None:
        """A staged manifest is not to become known."""
        staged.path.unlink(missing_ok=True)

    def remember(self, model: KnownModel, attach: Attach) -> None:
        """Keep what an engine said of a model that it loaded, if the disk lets us."""
        self._facts = {**self._facts, model.name: _fact(_digest(model.text), attach)}
        self._write_facts()

    def heal(self, started: Iterable[tuple[str, Attach]]) -> None:
        """What is not known of models any more is what engines attached with, last one last.

        Args: started: digest of the TOML that each was started with, and what it said.
        """
        lost = {
            a.serves: _fact(manifest, a) for manifest, a in started if a.serves not in self._facts
        }
        if lost:
            _log.warning("%s did not say what these are: %s", self._facts_path, ", ".join(lost))
            self._facts = {**self._facts, **lost}
            self._write_facts()

    def _names(self) -> set[str]:
        return {name for name in self._candidates() if _NAME.fullmatch(name)}

    def _candidates(self) -> Iterator[str]:
        for directory in (self._dir, self._models_dir):
            for path in directory.glob(f"*{_SUFFIX}"):
                yield path.name.removesuffix(_SUFFIX)
        for path in self._models_dir.glob("*/config.json"):
            yield path.parent.name

    def _implied(self, name: str) -> KnownModel:
        """A model directory without a manifest gets one of defaults, in the data dir."""
        manifest = Manifest(source=str((self._models_dir / name).absolute()))
        text = format_manifest(manifest)
        path = self._implied_dir / f"{name}{_SUFFIX}"
        with self._implying:  # several threads ask at once
            if not path.is_file() or path.read_text() != text:
                write_whole(path, text.encode())
        return KnownModel(name, path, text, manifest)

    def _read_facts(self) -> dict[str, _Fact]:
        try:
            return _facts_decoder.decode(self._facts_path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("%s cannot be read: %s", self._facts_path, error)
            return {}

    def _write_facts(self) -> None:
        try:
            write_whole(self._facts_path, msgspec.json.encode(self._facts))
        except StoreBroken as error:  # it is known until gliad ends
            _log.warning("%s", error)


def _fact(manifest: str, attach: Attach) -> _Fact:
    return _Fact(manifest, attach.model_id.hex(), attach.context_tokens, attach.files_dir)


def _read(name: str, path: Path) -> KnownModel:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ManifestError(error.strerror or str(error), file=str(path)) from error
    manifest = parse_manifest(data, str(path))
    return KnownModel(name, path, data.decode(), manifest)


def _value(model: KnownModel, fact: _Fact | None) -> ModelValue:
    if fact is not None and fact.manifest != _digest(model.text):
        fact = None
    source, manifest = model.source, model.manifest
    try:
        found = inspect_source(source)
        model_type, context = found.model_type, found.context_tokens
    except GliaError as error:
        _log.warning("model %s: %s", model.name, error)
        model_type, context = "", None
    scheme = manifest.kv_quant_scheme
    return ModelValue(
        name=model.name,
        source=str(source),
        manifest=str(model.path),
        model_type=model_type,
        dtype=manifest.dtype,
        block_size=manifest.block_size,
        kv_quant_scheme=scheme.word if scheme else _SCHEME_OF[manifest.dtype],
        position_anchor_mode=manifest.position_anchor_mode.word,
        model_id=fact.model_id if fact else None,
        context_tokens=fact.context_tokens if fact else context,
        files_dir=fact.files_dir if fact else str(source) if source.is_dir() else None,
    )


_SCHEME_OF = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def _digest(text: str) -> str:
    return digest(text.encode()).hex()


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file as a whole; one thread at a time for each. Raises: StoreBroken."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> StoreBroken:
    return StoreBroken(f"{path}: {error.strerror}", hint=f"df -h {path.parent}")
