"""audit --calibrate: how far off honest windows of a model are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from daemon import show
from glia.client import Client
from glia.errors import BadRequest
from glia.graph.manifest import CANONICAL_DTYPE, DTYPES
from glia.local.messages import CalibrateReply

NATIVE_DTYPES = tuple(dtype for dtype in DTYPES if dtype != CANONICAL_DTYPE)
_NUM_WINDOWS = 384


def calibrate(args: argparse.Namespace) -> int:
    """Have it measured, and say what came of it. Raises: GliaError."""
    if any(each is not None for each in (args.tip, args.peer, args.model, args.sample)):
        raise BadRequest(
            "--calibrate measures a model and audits nothing", hint="gliad audit --help"
        )
    with Client.connect(args.data_dir) as client:
        progress = show.ProgressLine()
        try:
            reply = client.calibrate(
                args.calibrate,
                dtype=args.dtype,
                num_windows=args.windows or _NUM_WINDOWS,
                on_progress=progress,
            )
        finally:
            progress.clear()
    if args.json:
        show.as_json(
            {
                "model": args.calibrate,
                "dtype": reply.dtype,
                "windows": reply.num_windows,
                "kernels": reply.kernels,
                "limits": {"whole": reply.whole, "common": reply.common},
                "path": reply.path,
                "spent_s": reply.spent_s,
            }
        )
        return 0
    for line in _lines(args.calibrate, reply):
        show.line(line)
    return 0


def _lines(model: str, reply: CalibrateReply) -> list[str]:
    kernels = ", ".join(reply.kernels)
    return [
        f"{model} in {reply.dtype}: {reply.num_windows:,} windows in {reply.spent_s:,.0f} s, "
        f"instruction sets {kernels}",
        f"a window may be off by {_range(reply.whole)}, three quarters of its positions by "
        f"{_range(reply.common)}: from layer to layer, K and V",
        "one that is further off is not used; of more than three times that whoever attests it "
        "is accused",
    ]


def _range(limits: Sequence[tuple[float, float]]) -> str:
    numbers = [each for pair in limits for each in pair]
    return f"{min(numbers):.1e} to {max(numbers):.1e}"
