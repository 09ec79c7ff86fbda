"""From a manifest to an engine that gliad can ask: open, attach."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from glia.client import Client
from glia.engine.calibration import read_calibration
from glia.engine.engine import Engine, EngineSettings
from glia.engine.limits import Limits
from glia.engine.loaded import LoadedModel
from glia.engine.opening import Opened, OpenSettings, open_model
from glia.engine.remote import RemoteMemory
from glia.engine.stops import Decode
from glia.errors import BadCalibration, BadRequest
from glia.graph.profile import Profile
from glia.local.messages import Progress
from glia.model.model_id import TOKENIZER
from glia.model.tokenizer import Tokenizer, eos_ids

_TELL_EVERY_S = 0.1
_log = logging.getLogger("glia.engine")


@dataclass(frozen=True)
class BootSettings(OpenSettings):
    """What the process was started with.

    Attributes:
        model: the name this engine answers for.
        staging_bytes: most that gliad gives one client.
    """

    model: str
    staging_bytes: int
    max_running: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class Booted:
    """An engine that is attached.

    Attributes:
        attach_id: the Attach call, which Ready and EngineStats name.
        tokens_per_s: how fast it computed a short prompt.
        limits: reads those that were measured of it; None where none were.
    """

    engine: Engine
    attach_id: int
    warnings: list[str]
    tokens_per_s: float
    limits: Callable[[], Limits | None]


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


def boot(client: Client, settings: BootSettings) -> Booted:
    """Load the model and attach.

    Raises: ManifestError, BadModelFile, ModelRefused, PoolExhausted, and what gliad refuses.
    """
    opened = open_model(settings, ProgressTeller(client).tell)
    model, profile = opened.model, opened.profile
    attach_id = _attach(client, opened, settings)

    def limits() -> Limits | None:
        return _limits(opened, settings)

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
        examiner=opened.examiner(limits()),
        eos_tokens=eos_ids(opened.files),
        decode=_decoder(opened.files),
    )
    return Booted(engine, attach_id, _warnings(model), model.tokens_per_s, limits)


def _limits(opened: Opened, settings: OpenSettings) -> Limits | None:
    """Those that were measured; what cannot be read is as if none were."""
    try:
        found = read_calibration(
            settings.calibrations, opened.model_id, opened.profile, settings.dtype
        )
    except BadCalibration as error:
        _log.warning("%s: %s", error.message, error.hint)
        return None
    return found.limits() if found is not None else None


def _attach(client: Client, opened: Opened, settings: BootSettings) -> int:
    return client.attach(
        opened.model_id,
        opened.profile,
        opened.model.numerics_class,
        serves=settings.model,
        dtype=settings.dtype,
        context_tokens=opened.model.context_tokens,
        files_dir=str(opened.files),
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
