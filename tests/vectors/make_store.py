"""Writes store.json: `python -m tests.vectors.make_store`. Frozen: a diff is a new version.

Three windows go down in two puts: two of a chain, then the first again in another
numerics class, whose blocks are shared. Then the first is forgotten: its group is
erased, and the blocks are written again as a second group of the third. Then the
store is closed. Of segments what is not zero is given, by offset.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import plyvel

from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from tests.builders import make_chain
from tests.store_parts import sealed, segment_files
from tests.vectors import make

FILE = Path(__file__).with_name("store.json")
_WINDOWS = sealed(make_chain(2))
_TWIN = replace(_WINDOWS[0].record, numerics_class="native:twin")
FORGOTTEN = _WINDOWS[0]
WINDOWS = [_WINDOWS[1], SealedWindow(_TWIN, _WINDOWS[0].prefix_key, _WINDOWS[0].particles)]
_ALIGN = 4096


def build() -> dict[str, Any]:
    """The vector: one segment file and all rows of the index, in hex."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        store = DiskStore(path, 1 << 20)
        store.put(_WINDOWS)
        store.put(WINDOWS[1:])
        store.forget([FORGOTTEN.record.window_id])
        store.close()
        rows = rows_of(path)
        (file,) = segment_files(path)
        return {
            "_comment": " ".join((__doc__ or "").split("\n\n")[1].split()),
            "format": (path / "format").read_text(),
            "segments": {"1": _without_zeros(file.read_bytes())},
            "rows": {key.hex(): value.hex() for key, value in rows.items()},
            "windows": [window.record.window_id.hex() for window in WINDOWS],
            "forgotten": FORGOTTEN.record.window_id.hex(),
        }


def _without_zeros(data: bytes) -> dict[str, Any]:
    pieces = {at: data[at : at + _ALIGN].rstrip(b"\0") for at in range(0, len(data), _ALIGN)}
    return {"size": len(data), **{str(at): piece.hex() for at, piece in pieces.items() if piece}}


def with_zeros(segment: dict[str, Any]) -> bytes:
    """A segment's bytes from the vector."""
    data = bytearray(segment["size"])
    for at, piece in segment.items():
        if at != "size":
            found = bytes.fromhex(piece)
            data[int(at) : int(at) + len(found)] = found
    return bytes(data)


def rows_of(path: Path) -> dict[bytes, bytes]:
    """All rows of a closed store's index."""
    index = plyvel.DB(str(path / "index"), create_if_missing=False)
    try:
        with index.iterator() as rows:
            return dict(rows)
    finally:
        index.close()


if __name__ == "__main__":
    FILE.write_text(make.render(build()))
