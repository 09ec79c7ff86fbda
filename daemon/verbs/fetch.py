"""fetch: a chain, or one particle, by its name, from peers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from daemon import show
from daemon.verbs.arguments import absolute
from glia.client import Client
from glia.errors import BadRequest
from glia.graph.cid import cid_text, parse_cid
from glia.graph.ids import ID_BYTES
from glia.local.messages import FetchReply

_HINT = "a tip in 64 hex digits, as run --json and links --json, or a CID, bafkr4i..."


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    fetch = verbs.add_parser(
        "fetch",
        parents=[common],
        help="have what peers have under a name",
        description="Of a window, has the whole chain that it ends, verified, attested by those "
        "whose word is taken here, and on disk. Of a block, verifies it. Peers hear the name. What "
        "is broken off keeps the windows that came, and goes on there when it is asked again; a "
        "chain that no conversation uses goes with gliad gc --unreferenced.",
    )
    fetch.add_argument("name", metavar="CID|TIP")
    fetch.add_argument(
        "--out", type=absolute, metavar="FILE", help="write the one particle there, and no more"
    )
    fetch.add_argument("--json", action="store_true")
    fetch.set_defaults(verb=_fetch)


def _fetch(args: argparse.Namespace) -> int:
    name = _name(args.name)
    with Client.connect(args.data_dir) as client:
        got = _got(client, name, whole=args.out is None)
    if args.out is not None:
        _write(Path(args.out), got.particle)
    if args.json:
        show.as_json(_as_dict(name, got))
        return 0
    for line in _lines(name, got, args.out):
        show.note(line)
    return 0


def _got(client: Client, name: bytes, *, whole: bool) -> FetchReply:
    if not whole:
        return client.fetch_particle(name)
    progress = show.ProgressLine()
    try:
        return client.fetch(name, progress)
    finally:
        progress.clear()


def _name(text: str) -> bytes:
    """Raises: BadRequest."""
    try:
        return parse_cid(text)
    except BadRequest:
        pass
    try:
        name = bytes.fromhex(text)
    except ValueError:
        name = b""
    if len(name) != ID_BYTES:
        raise BadRequest(f"not a name of a particle: {text[:80]!r}", hint=_HINT)
    return name


def _write(path: Path, particle: bytes) -> None:
    """Raises: BadRequest."""
    try:
        path.write_bytes(particle)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}", hint="give --out another file") from error


def _as_dict(name: bytes, got: FetchReply) -> dict[str, Any]:
    return {
        "name": name,
        "cid": cid_text(name),
        "kind": got.kind,
        "windows": got.num_windows,
        "fetched_windows": got.num_fetched,
        "tokens": got.num_tokens,
        "numerics_class": got.numerics_class or None,
        "bytes": len(got.particle) if got.particle else None,
        "sources": got.sources,
    }


def _lines(name: bytes, got: FetchReply, out: str | None) -> list[str]:
    if got.kind == "chain":
        had = f"{got.num_windows:,} windows, {got.num_tokens:,} tokens"
        new = f"{got.num_fetched:,} of them came" if got.num_fetched else "all were here already"
        lines = [f"{had}: {new}"]
    else:
        where = f"written to {out}" if out else "verified; --out FILE writes it"
        lines = [f"a {got.kind} of {len(got.particle):,} bytes, {where}"]
    return lines + [
        f"{each.blocks:,} blocks, {show.size(each.bytes)} from {each.peer}: {each.end}"
        for each in got.sources
    ]
