"""links: who attests what of that which this node shows peers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from daemon import show
from daemon.verbs.text import model_id_of
from glia.client import Client
from glia.errors import BadRequest
from glia.graph.ids import ID_BYTES, WindowId
from glia.local.network_values import LinkValue

_SHORT = 12  # hex digits


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    links = verbs.add_parser(
        "links",
        parents=[common],
        help="who attests what this node shows peers",
        description="Links: each is signed by a neuron, which computed the windows after BASE up "
        "to TIP. Those that are heard came by gossip; nobody has held them against windows yet. "
        "TRUST is what the signer is here; [network] accept says whose word is taken.",
    )
    links.add_argument("tip", metavar="TIP", nargs="?", help="of the chain that ends there")
    links.add_argument("--model", metavar="MODEL", help="of this model's chains")
    links.add_argument("--json", action="store_true")
    links.set_defaults(verb=_links)


def _links(args: argparse.Namespace) -> int:
    tip = tip_of(args.tip) if args.tip is not None else None
    with Client.connect(args.data_dir) as client:
        model_id = model_id_of(client.models(), args.model) if args.model is not None else None
        found = client.links(tip, model_id)
    if args.json:
        show.as_json(found)
    else:
        show.table(("SIGNER", "TRUST", "SOURCE", "WINDOWS", "TIP", "BASE", "AGE"), _rows(found))
    return 0


def tip_of(text: str) -> WindowId:
    """A window's id in hex. Raises: BadRequest."""
    try:
        name = bytes.fromhex(text)
    except ValueError:
        name = b""
    if len(name) != ID_BYTES:
        raise BadRequest(f"no window's id: {text[:80]!r}", hint="64 hex digits, as run --json")
    return WindowId(name)


def _rows(links: Sequence[LinkValue]) -> list[tuple[str, ...]]:
    now_s = time.time()
    return [
        (
            f"{link.signer.hex()[:_SHORT]}{' (this node)' if link.own else ''}",
            link.trust if link.accepted else f"{link.trust}, not taken",
            link.source,
            f"{link.num_before:,} to {link.num_windows:,}",
            link.tip.hex()[:_SHORT],
            link.base.hex()[:_SHORT],
            show.span(max(0.0, now_s - link.time_s)),
        )
        for link in links
    ]
