"""ps: requests under way and the last ones that ended, and what they were spared."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from daemon import show
from daemon.verbs.watching import add_flags, listing
from glia.client import Client
from glia.graph.numerics import CANONICAL
from glia.local.values import RunValue

_TIERS = ("l0", "l1", "l2", "peers")
_ENDED = ("stop", "length")
_MAX_NAME = 64  # of those that can be


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare this module's verb."""
    ps = verbs.add_parser("ps", parents=[common], help="requests: running ones, and the last ones")
    add_flags(ps)
    ps.set_defaults(verb=_ps)


def _ps(args: argparse.Namespace) -> int:
    return listing(args, Client.runs, _show)


def _show(runs: Sequence[RunValue]) -> None:
    classes = ["CLASS"] if any(r.numerics_class == CANONICAL for r in runs) else []
    tiers = [tier for tier in _TIERS if tier != "peers" or any(r.cached.peers for r in runs)]
    show.table(
        ("MODEL", *classes, "CONVERSATION", "STATE", "BEGUN", "PROMPT",
         *(tier.upper() for tier in tiers), "COMPUTED", "ANSWER", "FIRST TOKEN", "TOKENS/S"),
        [_row(run, classes, tiers, time.time()) for run in runs],
    )  # fmt: skip
    if runs:
        show.line("\n" + sums_line(runs))
    for run in runs:
        if run.error:
            show.line(f"{_name(run.conversation or run.model)}: {run.error}")


def _row(
    run: RunValue, classes: Sequence[str], tiers: Sequence[str], now_s: float
) -> tuple[str, ...]:
    return (
        _name(run.model),
        *(run.numerics_class.partition(":")[0] for _ in classes),
        _name(run.conversation) or "not kept",
        run.state,
        f"{show.span(now_s - run.started_s)} ago",
        f"{run.prompt_tokens:,}",
        *_counts(run, tiers),
        f"{run.completion_tokens:,}",
        "not yet" if run.ttft_ms is None else f"{run.ttft_ms / 1000:.2f} s",
        "unknown" if run.tokens_per_s is None else f"{run.tokens_per_s:,.0f}",
    )


def _counts(run: RunValue, tiers: Sequence[str]) -> list[str]:
    """Blank until the engine has said them, which is when it ends: no 0 that turns out wrong."""
    counts = [*(getattr(run.cached, tier) for tier in tiers), run.computed]
    return [f"{count:,}" if any(counts) else "" for count in counts]


def _name(asked: str) -> str:
    """A model's or conversation's name. One that was refused can be whatever a client sent."""
    shown = repr(asked)[1:-1]
    return shown if len(shown) <= _MAX_NAME else shown[: _MAX_NAME - 1] + "…"


def sums_line(runs: Sequence[RunValue]) -> str:
    """Of those that were answered: 5,000 prompt tokens = 4,000 cached + 1,000 computed."""
    ended = [run for run in runs if run.state in _ENDED]
    cached = sum(getattr(run.cached, tier) for run in ended for tier in _TIERS)
    computed = sum(run.computed for run in ended)
    prompt = sum(run.prompt_tokens for run in ended)
    return (
        f"{len(ended):,} answered: {prompt:,} prompt tokens = "
        f"{cached:,} cached + {computed:,} computed"
    )
