"""Writes equivocation.json: `python -m tests.vectors.make_equivocation`. Frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from glia.graph.equivocation import Equivocation, equivocation, promise_key, statement
from glia.graph.ids import BlockId, WindowId, digest, genesis_window
from glia.graph.link import Link, sign_link
from glia.graph.numerics import CANONICAL
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from tests.vectors import make
from tests.vectors.make_link import SIGNER, TIME_S

AT, NUM = 3, 6


def chain(twist: bytes = b"") -> list[WindowRecord]:
    """Six canonical windows. Args: twist: makes other blocks from window AT on."""
    records: list[WindowRecord] = []
    prev = genesis_window(make.MODEL, make.SMALL.profile_id)
    for index in range(NUM):
        record = replace(make._record(make.SMALL, prev, index), numerics_class=CANONICAL)
        if twist and index >= AT:
            blocks = tuple(BlockId(digest(name + twist)) for name in record.blocks)
            record = replace(record, blocks=blocks)
        records.append(record)
        prev = WindowId(record.window_id)
    return records


def signed(records: Sequence[WindowRecord], sequence: int = 1) -> Link:
    """A link over all of them."""
    (claim,) = claims(records, 0)
    return sign_link(SIGNER, claim, sequence, TIME_S)


def proof() -> Equivocation:
    """Of window AT."""
    said = [statement(signed(each), each, each[AT]) for each in (chain(), chain(b"x"))]
    return equivocation(*said)


_PATCHES = (
    ("magic", 0, "00"), ("version", 4, "02"), ("zero", 6, "01"), ("a link's kind", 14, "02"),
    ("a signature", 240, "ff"), ("no records", 296, "0000"), ("too many records", 296, "0101"),
    ("a record's length", 298, "ff"), ("a record's class", -1, "78"),
)  # fmt: skip


def build() -> dict[str, make.Json]:
    """File name to content."""
    found = proof()
    one, other = found.one.window, found.other.window
    return {
        "equivocation.json": {
            "_comment": "Signed by seed('neuron', 32): two chains of six canonical windows that "
            "part at window 3. refused: the encoding with `bytes` written at `at` (from the end "
            "where it is negative), or cut or filled with zeros to `length`.",
            "signer": found.signer.hex(),
            "one": one.window_id.hex(),
            "other": other.window_id.hex(),
            "position": one.position_start,
            "promise": promise_key(found.signer, one).hex(),
            "encoding": found.encoding.hex(),
            "refused": [{"why": why, "at": at, "bytes": text} for why, at, text in _PATCHES]
            + [
                {"why": f"{length} bytes", "length": length}
                for length in (0, 7, 8, 296, len(found.encoding) - 1, len(found.encoding) + 1)
            ],
        }
    }


def main() -> None:
    """Write the file."""
    for name, content in build().items():
        (make.HERE / name).write_text(make.render(content), encoding="ascii")


if __name__ == "__main__":
    main()
