"""model_ids that were computed before, kept by file identity.

Identity is (device, inode, size, mtime, ctime) of every file that counts: no path, so a
renamed directory keeps its entry, and a rewritten file loses it even where its mtime is
put back. A cache that cannot be read is recomputed; it decides nothing but time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from glia.errors import BadModelFile
from glia.graph.ids import ID_BYTES, ModelId, digest
from glia.model.model_id import involved_files, model_id
from glia.model.read import MIB, read_bounded
from glia.model.weights import Progress

_VERSION = 1
_MAX_ENTRIES = 1024
# A file changed this shortly before it was looked at could change again within one
# tick of the file system's clock, unseen.
_SETTLE_NS = 20_000_000


class _Cache(msgspec.Struct):
    version: int
    ids: dict[str, str]


_decoder = msgspec.json.Decoder(_Cache)


def cached_model_id(
    model_dir: Path,
    cache: Path,
    adapters: Sequence[Path] = (),
    on_progress: Progress | None = None,
) -> ModelId:
    """As model_id, remembered in the JSON file `cache`.

    Raises: BadModelFile. A cache that cannot be written is not an error.
    """
    files = involved_files(model_dir, adapters)
    seen_ns = time.time_ns()
    identity, newest_ns = _identity(files)
    known = _load(cache)
    if identity in known:
        return ModelId(bytes.fromhex(known[identity]))
    name = model_id(model_dir, adapters, on_progress)
    if seen_ns - newest_ns > _SETTLE_NS and _identity(files)[0] == identity:
        _save(cache, {**known, identity: name.hex()})
    return name


def _identity(files: Sequence[Path]) -> tuple[str, int]:
    rows: list[tuple[int, ...]] = []
    for path in files:
        try:
            stat = path.stat()
        except (OSError, ValueError) as error:
            raise BadModelFile(f"{path}: no such file", hint=f"ls -l {path.parent}") from error
        rows.append((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return digest(repr((_VERSION, rows)).encode()).hex(), max(row[-1] for row in rows)


def _load(cache: Path) -> dict[str, str]:
    try:
        found = _decoder.decode(read_bounded(cache, MIB))
    except (BadModelFile, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    if found.version != _VERSION or not all(map(_is_name, found.ids.values())):
        return {}
    return found.ids


def _is_name(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) == ID_BYTES
    except ValueError:
        return False


def _save(cache: Path, ids: dict[str, str]) -> None:
    kept = dict(list(ids.items())[-_MAX_ENTRIES:])
    try:
        fd, name = tempfile.mkstemp(prefix=cache.name, dir=cache.parent)
    except OSError:
        return
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(_Cache(_VERSION, kept)))
        os.replace(name, cache)
    except OSError:
        Path(name).unlink(missing_ok=True)
