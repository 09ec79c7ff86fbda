"""The table at the end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from simulations.network.world import Result, Setting, quantile


def as_dict(setting: Setting, result: Result) -> dict[str, Any]:
    """All of it as plain values."""
    values = asdict(result)
    took_s = values.pop("took_s")
    shares = {f"p{100 * share:g}_s": quantile(took_s, share) for share in (0.5, 0.95, 0.99)}
    return {"setting": asdict(setting), **values, **shares}


def table(result: Result) -> str:
    """One line a figure."""
    num = result.num_fetches
    rows = [
        ("fetches, a holder online", f"{num:,}"),
        ("  found", _of(result.num_found, num)),
        ("  fetched whole", _of(result.num_whole, num)),
        ("  wrong", f"{result.num_wrong:,}"),
        ("  time, median / 99 %", _times(result)),
        ("fetches, no holder stayed", f"{result.num_without_holder:,}"),
        ("nodes that went", f"{result.num_gone:,}"),
        ("lies that were noticed", f"{result.num_lies:,}"),
        ("announcements", f"{result.announcements:,}"),
        ("messages of the directory", f"{result.directory_messages:,}"),
        ("traffic: asked and fetched", f"{result.sent_bytes / 1e6:,.1f} MB"),
        ("traffic: blocks alone", f"{result.num_bytes / 1e6:,.1f} MB"),
        ("trace", result.trace),
    ]
    return "\n".join(f"{name:<28}{value}" for name, value in rows)


def _of(part: int, whole: int) -> str:
    return f"{part:,}  {part / whole:.2%}" if whole else "-"


def _times(result: Result) -> str:
    return f"{quantile(result.took_s, 0.5):.2f} / {quantile(result.took_s, 0.99):.2f} s"
