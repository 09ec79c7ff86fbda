"""What engines attached with, remembered across restarts: models, profiles, numerics classes.

Says under which profiles a model's windows may stand (their prefix keys follow from it),
and what could be computed here again: a model is at hand where its manifest is the one
that was loaded and its files are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from daemon.binding import Binding, bind
from daemon.models_registry import KnownModel, write_whole
from glia.errors import BadRequest, GliaError, StoreBroken
from glia.graph.ids import ModelId, ProfileId, digest
from glia.local.messages import Attach
from glia.model.files import inspect_source

_MAX_KEPT = 1024
_log = logging.getLogger("gliad.attachments")


@dataclass(frozen=True, slots=True)
class Layout:
    """What prefix keys of a model's windows follow from, beside the tokens."""

    profile_id: ProfileId
    block_size: int


@dataclass(frozen=True, slots=True)
class Computable:
    """Windows of this model, profile and class can be computed here."""

    model_id: ModelId
    profile_id: ProfileId
    numerics_class: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """An engine as it attached.

    Attributes:
        manifest: digest of the TOML it was started with, "" of a guest's.
    """

    model: str
    dtype: str
    manifest: str
    binding: Binding

    @property
    def model_id(self) -> ModelId:
        return self.binding.model_id

    @property
    def layout(self) -> Layout:
        profile = self.binding.profile
        return Layout(profile.profile_id, profile.block_size)

    @property
    def computable(self) -> Computable:
        binding = self.binding
        return Computable(binding.model_id, binding.profile.profile_id, binding.numerics_class)


class _Seen(msgspec.Struct, frozen=True):
    """An attachment in the file."""

    manifest: str
    attach: Attach


_decoder = msgspec.json.Decoder(list[_Seen])


class Attachments:
    """All of them, last one last. Owned by the trio thread; the file is read once.

    Attributes:
        on_change: called when an engine attached in another way than the last one.
    """

    def __init__(self, path: Path) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._path = path
        self._seen: dict[Attachment, _Seen] = {}
        try:
            for seen in _decoder.decode(path.read_bytes()):
                self._seen[_attachment(seen)] = seen
        except (OSError, msgspec.DecodeError, BadRequest) as error:
            _log.info("what engines attached with is not known yet: %s", error)

    def remember(self, attach: Attach, model: KnownModel | None) -> None:
        """An engine is ready. Args: model: what it was started for, None for a guest."""
        seen = _Seen(_digest(model.text) if model is not None else "", attach)
        attachment = _attachment(seen)
        if next(reversed(self._seen), None) == attachment:
            return
        self._seen.pop(attachment, None)
        self._seen[attachment] = seen
        self.on_change()
        while len(self._seen) > _MAX_KEPT:
            del self._seen[next(iter(self._seen))]
        try:
            write_whole(self._path, msgspec.json.encode(list(self._seen.values())))
        except StoreBroken as error:  # it is known until gliad ends
            _log.warning("%s", error)

    def all(self) -> list[Attachment]:
        """Every one that is known, last one first. For any thread: one step of the interpreter."""
        return list(reversed(self._seen))

    def started(self) -> list[tuple[str, Attach]]:
        """What engines attached with, and the digest of the TOML each was started with."""
        return [(seen.manifest, seen.attach) for seen in self._seen.values() if seen.manifest]

    def last(self, model: str, dtype: str) -> Attachment | None:
        """How the engine of a model attached last."""
        return next((a for a in self.all() if (a.model, a.dtype) == (model, dtype)), None)

    def layouts(self, model_id: ModelId) -> set[Layout]:
        """Profiles under which engines ever kept windows of a model. For any thread."""
        return {a.layout for a in self.all() if a.model_id == model_id}

    def computable(self, models: Iterable[KnownModel]) -> frozenset[Computable]:
        """What the engines of these models would compute, as they attached last.

        Looks at the models' files: for a worker thread.
        """
        last: dict[tuple[str, str], Attachment] = {}
        for attachment in self.all():
            if attachment.manifest:
                last.setdefault((attachment.model, attachment.dtype), attachment)
        texts = {model.name: _digest(model.text) for model in models if _is_there(model)}
        return frozenset(a.computable for a in last.values() if texts.get(a.model) == a.manifest)


def _attachment(seen: _Seen) -> Attachment:
    """Raises: BadRequest where the file says what no engine could."""
    attach = seen.attach
    return Attachment(attach.serves, attach.dtype, seen.manifest, bind(attach))


def _is_there(model: KnownModel) -> bool:
    try:
        inspect_source(model.source)
    except GliaError:
        return False
    adapters = (model.path.parent / adapter for adapter in model.manifest.adapters)
    return all(adapter.exists() for adapter in adapters)


def _digest(text: str) -> str:
    return digest(text.encode()).hex()
