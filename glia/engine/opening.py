"""From a manifest to a loaded model that has its name: convert, name, load, test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from glia.engine.canonical import CanonicalModel
from glia.engine.convert import converted
from glia.engine.examining import Examiner
from glia.engine.limits import Limits
from glia.engine.load import LoadSettings, load_model
from glia.engine.loaded import LoadedModel
from glia.errors import ManifestError, ModelRefused
from glia.graph.ids import ModelId
from glia.graph.manifest import Manifest, parse_manifest, profile_of, scheme_of
from glia.graph.profile import PositionMode, Profile
from glia.model.files import inspect_source
from glia.model.ids_cache import cached_model_id

_MAX_MANIFEST_BYTES = 64 * 1024

Tell = Callable[[str, int, int], None]  # `done` of `total` of `what`


@dataclass(frozen=True)
class OpenSettings:
    """Which model, and how.

    Attributes:
        manifest: its `.model` file; paths in it are relative to its directory.
        dtype: compute dtype.
        ids_cache: where model ids are remembered.
        convert_dir: where conversions of GGUF files are kept.
        calibrations: where it is kept how far off honest K and V are.
        wide_bytes: most that weights may take in float64, for the canonical class.
    """

    manifest: Path
    dtype: str
    ids_cache: Path
    convert_dir: Path
    calibrations: Path
    l0_bytes: int
    wide_bytes: int
    num_threads: int


@dataclass(frozen=True)
class Opened:
    """A model that is loaded. `files`: its directory; `adapters`: those of its LoRAs."""

    files: Path
    adapters: Sequence[Path]
    model_id: ModelId
    model: LoadedModel
    profile: Profile

    def examiner(self, limits: Limits | None = None) -> Examiner:
        """Looks at windows of it. Args: limits: None where it was not calibrated."""
        reference = partial(CanonicalModel.open, self.files, self.adapters)
        return Examiner(self.model.layer_zero, reference, self.profile, limits)


def open_model(settings: OpenSettings, tell: Tell) -> Opened:
    """Load it. Raises: ManifestError, BadModelFile, ModelRefused, PoolExhausted."""
    manifest = _read_manifest(settings.manifest)
    base = settings.manifest.parent
    adapters = [base / adapter for adapter in manifest.adapters]
    files = _model_files(base / manifest.source, settings.convert_dir, tell)
    name = cached_model_id(files, settings.ids_cache, adapters, partial(tell, "hashing weights"))
    model = _load(files, adapters, manifest, settings, tell)
    profile = profile_of(manifest, model.shapes, settings.dtype)
    return Opened(files, adapters, name, model, profile)


def _read_manifest(path: Path) -> Manifest:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"{error.strerror}", file=str(path)) from error
    if len(data) > _MAX_MANIFEST_BYTES:
        raise ManifestError("larger than a manifest may be", file=str(path))
    return parse_manifest(data, str(path))


def _model_files(source: Path, convert_dir: Path, tell: Tell) -> Path:
    """The model's directory: the source itself, or its conversion."""
    if inspect_source(source).kind == "directory":
        return source
    return converted(source, convert_dir, partial(tell, "converting"))


def _load(
    files: Path,
    adapters: Sequence[Path],
    manifest: Manifest,
    settings: OpenSettings,
    tell: Tell,
) -> LoadedModel:
    if manifest.position_anchor_mode is not PositionMode.RELATIVE:
        raise ModelRefused(
            "this engine keeps K unrotated: it computes position_anchor_mode relative only",
            hint='set position_anchor_mode = "relative" in the manifest',
        )
    how = LoadSettings(
        dtype=settings.dtype,
        block_size=manifest.block_size,
        scheme=scheme_of(manifest, settings.dtype),
        l0_bytes=settings.l0_bytes,
        num_threads=settings.num_threads,
        adapters=tuple(adapters),
        wide_bytes=settings.wide_bytes,
    )
    return load_model(files, how, lambda what, part: tell(what, int(part * 100), 100))
