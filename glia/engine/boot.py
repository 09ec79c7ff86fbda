"""From a manifest to an engine that gliad can ask: convert, name, load, test, attach."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from glia.client import Client
from glia.engine.canonical import CanonicalModel
from glia.engine.convert import converted
from glia.engine.engine import Engine, EngineSettings
from glia.engine.examining import Examiner
from glia.engine.load import LoadSettings, load_model
from glia.engine.loaded import LoadedModel
from glia.engine.remote import RemoteMemory
from glia.engine.stops import Decode
from glia.errors import BadRequest, ManifestError, ModelRefused
from glia.graph.ids import ModelId
from glia.graph.manifest import Manifest, parse_manifest, profile_of, scheme_of
from glia.graph.profile import PositionMode, Profile
from glia.local.messages import Progress
from glia.model.files import inspect_source
from glia.model.ids_cache import cached_model_id
from glia.model.model_id import TOKENIZER
from glia.model.tokenizer import Tokenizer, eos_ids

_MAX_MANIFEST_BYTES = 64 * 1024
_TELL_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class BootSettings:
    """What the process was started with.

    Attributes:
        model, dtype: the name and compute dtype this engine answers for.
        manifest: its `.model` file; paths in it are relative to its directory.
        ids_cache: where model ids are remembered.
        convert_dir: where conversions of GGUF files are kept.
        staging_bytes: most that gliad gives one client.
        wide_bytes: most that weights may take in float64, for the canonical class.
    """

    model: str
    manifest: Path
    dtype: str
    ids_cache: Path
    convert_dir: Path
    l0_bytes: int
    staging_bytes: int
    wide_bytes: int
    num_threads: int
    max_running: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class Booted:
    """An engine that is attached.

    Attributes:
        attach_id: the Attach call, which Ready and EngineStats name.
        tokens_per_s: how fast it computed a short prompt.
    """

    engine: Engine
    attach_id: int
    warnings: list[str]
    tokens_per_s: float


class ProgressTeller:
    """Tells gliad how far loading is, not more often than anybody can read it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._what = ""
        self._told_s = 0.0

    def tell(self, what: str, done: int, total: int) -> None:
        """`done` of `total` of `what`."""
        now = time.monotonic()
        if what != self._what or done >= total or now - self._told_s >= _TELL_EVERY_S:
            self._what, self._told_s = what, now
            self._client.send_event(Progress(0, what, done, total))

    def of(self, what: str) -> Callable[[int, int], None]:
        """The same for one `what`."""
        return lambda done, total: self.tell(what, done, total)


def boot(client: Client, settings: BootSettings) -> Booted:
    """Load the model and attach.

    Raises: ManifestError, BadModelFile, ModelRefused, PoolExhausted, and what gliad refuses.
    """
    teller = ProgressTeller(client)
    manifest = _read_manifest(settings.manifest)
    base = settings.manifest.parent
    adapters = [base / adapter for adapter in manifest.adapters]
    files = _model_files(base / manifest.source, settings.convert_dir, teller)
    name = cached_model_id(files, settings.ids_cache, adapters, teller.of("hashing weights"))
    model = _load(files, adapters, manifest, settings, teller)
    profile = profile_of(manifest, model.shapes, settings.dtype)
    attach_id = _attach(client, name, profile, model, files, settings)
    engine = Engine(
        model,
        _memory(client, profile, settings),
        profile,
        EngineSettings(
            num_slots=model.num_slots,
            slot_bytes=model.slot_bytes,
            max_running=settings.max_running,
            prefill_tokens=settings.prefill_tokens,
        ),
        examiner=Examiner(model.layer_zero, partial(CanonicalModel.open, files, adapters), profile),
        eos_tokens=eos_ids(files),
        decode=_decoder(files),
    )
    return Booted(engine, attach_id, _warnings(model), model.tokens_per_s)


def _read_manifest(path: Path) -> Manifest:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise ManifestError(f"{error.strerror}", file=str(path)) from error
    if len(data) > _MAX_MANIFEST_BYTES:
        raise ManifestError("larger than a manifest may be", file=str(path))
    return parse_manifest(data, str(path))


def _model_files(source: Path, convert_dir: Path, teller: ProgressTeller) -> Path:
    """The model's directory: the source itself, or its conversion."""
    if inspect_source(source).kind == "directory":
        return source
    return converted(source, convert_dir, teller.of("converting"))


def _load(
    files: Path,
    adapters: Sequence[Path],
    manifest: Manifest,
    settings: BootSettings,
    teller: ProgressTeller,
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
    return load_model(files, how, lambda what, part: teller.tell(what, int(part * 100), 100))


def _attach(
    client: Client,
    name: ModelId,
    profile: Profile,
    model: LoadedModel,
    files: Path,
    settings: BootSettings,
) -> int:
    return client.attach(
        name,
        profile,
        model.numerics_class,
        serves=settings.model,
        dtype=settings.dtype,
        context_tokens=model.context_tokens,
        files_dir=str(files),
    )


def _memory(client: Client, profile: Profile, settings: BootSettings) -> RemoteMemory:
    """Memory with staging for two pieces of prefill and a window of each sequence beside."""
    wanted = 2 * max(1, settings.prefill_tokens // profile.block_size) + settings.max_running
    allowed = max(1, settings.staging_bytes // profile.window_payload_bytes)
    return RemoteMemory(client, profile, min(wanted, allowed) * profile.window_payload_bytes)


def _decoder(files: Path) -> Decode:
    if not (files / TOKENIZER).exists():
        return _no_text
    tokenizer = Tokenizer.load(files)
    return lambda ids: tokenizer.decode(ids, skip_special=False)


def _no_text(ids: Sequence[int]) -> str:
    raise BadRequest(
        "stop strings need a tokenizer, and this model's directory has none",
        hint="use stop tokens",
    )


def _warnings(model: LoadedModel) -> list[str]:
    if model.decode_is_exact:
        return []
    return [
        "decoding does not give the bytes of prefill here: answers are computed again next turn"
    ]
