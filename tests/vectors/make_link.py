"""Writes link.json and cid.json: `python -m tests.vectors.make_link`. Frozen."""

from __future__ import annotations

from typing import Any

from glia.graph.cid import cid_bytes, cid_text
from glia.graph.ids import PrefixKey, WindowId, digest, genesis_window
from glia.graph.link import Claim, Link, LinkKind, sign_link
from glia.graph.neuron import Signer
from glia.graph.spans import claims
from tests.vectors import make

SIGNER = Signer(make.seed("neuron", 32))
OTHER = Signer(make.seed("other neuron", 32))
TIME_S = 1_800_000_000


def chain() -> list[Any]:
    """Eighteen windows, as window.json makes its first two."""
    records: list[Any] = []
    prev = genesis_window(make.MODEL, make.SMALL.profile_id)
    for index in range(18):
        records.append(make._record(make.SMALL, prev, index))
        prev = records[-1].window_id
    return records


def links() -> list[Link]:
    """A span, a tip after it, a fork's far end, and a splice with all numbers at their largest."""
    span, tip = claims(chain(), 0)
    far = Claim(
        LinkKind.SPLICE,
        make.MODEL,
        make.SMALL.profile_id,
        WindowId(make.seed("base", 32)),
        WindowId(make.seed("tip", 32)),
        PrefixKey(make.seed("key", 32)),
        2**32 - 257,
        2**32 - 1,
    )
    return [
        sign_link(SIGNER, span, 1, TIME_S),
        sign_link(SIGNER, tip, 2, TIME_S + 1),
        sign_link(OTHER, tip, 0, 0),
        sign_link(OTHER, far, 2**64 - 1, 2**64 - 1),
    ]


def _case(link: Link) -> make.Json:
    claim = link.claim
    return {
        "kind": claim.kind.name.lower(),
        "num_before": claim.num_before,
        "num_windows": claim.num_windows,
        "sequence": link.sequence,
        "time": link.time_s,
        "model": claim.model_id.hex(),
        "profile": claim.profile_id.hex(),
        "base": claim.base.hex(),
        "tip": claim.tip.hex(),
        "key": claim.prefix_key.hex(),
        "signer": link.signer.hex(),
        "encoding": link.encoding.hex(),
        "link_id": link.link_id.hex(),
    }


_PATCHES = (
    ("magic", 0, "00"), ("version", 4, "02"), ("kind 0", 6, "00"), ("kind 3", 6, "03"),
    ("zero", 7, "01"), ("no windows", 12, "00000000"), ("too many windows", 12, "01010000"),
    ("genesis in the middle", 8, "01"),
    ("sequence", 16, "ff"), ("time", 24, "ff"), ("model", 32, "ff"), ("profile", 64, "ff"),
    ("base", 96, "ff"), ("tip", 128, "ff"), ("key", 160, "ff"), ("signer", 192, "ff"),
    ("r", 224, "ff"), ("s", 256, "ff"), ("s past the order", 287, "ff"),
    ("a weak signer, r and s of anybody", 192,
     "01" + 31 * "00" + "01" + 31 * "00" + 32 * "00"),
)  # fmt: skip


def build() -> dict[str, make.Json]:
    """File name to content."""
    names = [make.MODEL, digest(b""), bytes(32), b"\xff" * 32]
    return {
        "link.json": {
            "_comment": "Signed by seed('neuron', 32) and seed('other neuron', 32). The first two "
            "attest windows 0-15 and 16-17 of a chain that goes on as window.json begins. "
            "refused: the first case with `bytes` written at `at`, or cut or filled with zeros "
            "to `length`.",
            "cases": [_case(link) for link in links()],
            "refused": [{"why": why, "at": at, "bytes": text} for why, at, text in _PATCHES]
            + [{"why": f"{length} bytes", "length": length} for length in (0, 224, 287, 289)],
        },
        "cid.json": {
            "_comment": "Names of particles, their binary CIDs in hex, and their text.",
            "cases": [
                {"name": name.hex(), "bytes": cid_bytes(name).hex(), "text": cid_text(name)}
                for name in names
            ],
        },
    }


def main() -> None:
    """Write both files."""
    for name, content in build().items():
        (make.HERE / name).write_text(make.render(content), encoding="ascii")


if __name__ == "__main__":
    main()
