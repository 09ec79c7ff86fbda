"""What was measured of one model: how far honest K and V are off. See spec/20-calibration.md."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated

import msgspec

from glia.engine.limits import Limits, Off, Pair, calibrated
from glia.errors import BadCalibration, BadModelFile, StoreError
from glia.graph.ids import ModelId
from glia.graph.profile import MAX_LAYERS, Profile
from glia.model.read import MIB, read_bounded

_VERSION = 1
_MOST = 1e6  # of any number here but counts
_HINT = "gliad audit --calibrate MODEL makes it anew"


@dataclass(frozen=True)
class Calibration:
    """Of a model, a profile and a compute dtype.

    Attributes:
        num_windows: from which it was measured.
        kernels: instruction sets that these were computed with, by torch's names.
        worst: per layer the largest errors.
        norms: per layer, of K and of V, the least and the largest norm of a row of one head.
    """

    model_id: ModelId
    profile: Profile
    dtype: str
    num_windows: int
    kernels: tuple[str, ...]
    worst: tuple[Off, ...]
    norms: tuple[tuple[Pair, Pair], ...]

    def limits(self) -> Limits:
        """What follows for windows of others."""
        return calibrated(self.profile.scheme, self.worst, self.norms)


class _Layer(msgspec.Struct, forbid_unknown_fields=True):
    whole: Pair
    common: Pair
    norms: tuple[Pair, Pair]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    model_id: str
    profile_id: str
    dtype: str
    windows: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    kernels: Annotated[list[str], msgspec.Meta(min_length=1, max_length=16)]
    layers: Annotated[list[_Layer], msgspec.Meta(min_length=1, max_length=MAX_LAYERS)]


_decoder = msgspec.json.Decoder(_File)


def calibration_path(directory: Path, model_id: ModelId, profile: Profile, dtype: str) -> Path:
    """Where it is, if it is."""
    return directory / f"{model_id.hex()}-{profile.profile_id.hex()}-{dtype}.json"


def write_calibration(directory: Path, found: Calibration) -> Path:
    """Keep it, whole or not at all. Returns: its file. Raises: StoreError."""
    path = calibration_path(directory, found.model_id, found.profile, found.dtype)
    value = _File(
        version=_VERSION,
        model_id=found.model_id.hex(),
        profile_id=found.profile.profile_id.hex(),
        dtype=found.dtype,
        windows=found.num_windows,
        kernels=list(found.kernels),
        layers=[
            _Layer(off.whole, off.common, norms)
            for off, norms in zip(found.worst, found.norms, strict=True)
        ],
    )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(prefix=".calibration.", dir=directory)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(value), indent=1))
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(
            f"what was measured cannot be kept: {error.strerror}: {path}", hint="df -h"
        ) from error
    return path


def read_calibration(
    directory: Path, model_id: ModelId, profile: Profile, dtype: str
) -> Calibration | None:
    """What was measured; None where nothing was.

    Raises: BadCalibration (it cannot be read, or is not of this model, profile and dtype).
    """
    path = calibration_path(directory, model_id, profile, dtype)
    if not path.exists():
        return None
    try:
        found = _decoder.decode(read_bounded(path, MIB))
    except (BadModelFile, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadCalibration(f"{path}: not a calibration: {error}", hint=_HINT) from error
    named = (found.version, found.model_id, found.profile_id, found.dtype)
    if named != (_VERSION, model_id.hex(), profile.profile_id.hex(), dtype):
        raise BadCalibration(f"{path}: of another version, model or dtype", hint=_HINT)
    if len(found.layers) != len(profile.layers):
        raise BadCalibration(f"{path}: not of so many layers", hint=_HINT)
    if not all(map(_is_sound, found.layers)):
        raise BadCalibration(f"{path}: a number is out of range", hint=_HINT)
    return Calibration(
        model_id,
        profile,
        dtype,
        found.windows,
        tuple(found.kernels),
        tuple(Off(layer.whole, layer.common) for layer in found.layers),
        tuple(layer.norms for layer in found.layers),
    )


def _is_sound(layer: _Layer) -> bool:
    return all(map(_is_size, (*layer.whole, *layer.common))) and all(
        _is_size(low) and _is_size(high) and low <= high for low, high in layer.norms
    )


def _is_size(number: float) -> bool:
    return isfinite(number) and 0 <= number <= _MOST
