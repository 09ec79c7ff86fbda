"""Two pictures of a report: how far each row is from its floor, and where a first token goes.

matplotlib is an extra: without it there are none.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from simulations.bench.report import Goal, Report

_COLOURS = {"goal": "tab:green", "floor": "tab:olive", "BELOW": "tab:red"}
_TIERS = ("L0", "L1", "L2", "peer")
_AFTER = {"first token", "decode", "last_window", "flush"}  # none of it before the first token


def draw_all(report: Report, directory: Path) -> list[str]:
    """Write what there is to see. Returns: the names of the files."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    pictures = {"rows.png": _rows, "first_token.png": _first_token}
    return [name for name, draw in pictures.items() if draw(report, directory / name)]


def times_floor(goal: Goal, value: float) -> float:
    """How many times as good as the floor asks for."""
    return value / goal.floor if goal.direction == "at least" else goal.floor / value


def _rows(report: Report, path: Path) -> bool:
    goals = [goal for goal in report.goals if goal.name in report.rows][::-1]
    if not goals:
        return False
    figure, axes = _new(height=1 + 0.35 * len(goals))
    reached = [times_floor(goal, report.rows[goal.name].value) for goal in goals]
    colours = [_COLOURS[report.verdict(goal)] for goal in goals]
    names = [f"{goal.name}  {goal.what}" for goal in goals]
    axes.barh(names, reached, color=colours)
    axes.plot([times_floor(goal, goal.goal) for goal in goals], names, "k|", ms=12, label="goal")
    axes.axvline(1, color="black", label="floor")
    axes.set_xscale("log")
    axes.set_xlabel("times as good as the floor")
    axes.legend()
    figure.savefig(path, dpi=120)
    return True


def _first_token(report: Report, path: Path) -> bool:
    """Milliseconds of each part, stacked, by the tier that the prompt was in."""
    tiers: dict[str, dict[str, float]] = {}
    for figures in report.parts.values():
        for name, value in figures.items():
            tier, colon, part = name.strip().removesuffix(", ms").partition(": ")
            if colon and tier in _TIERS:
                tiers.setdefault(tier, {})[part] = value
    if not tiers:
        return False
    figure, axes = _new(height=4)
    left = dict.fromkeys(tiers, 0.0)
    for part in sorted({part for parts in tiers.values() for part in parts} - _AFTER):
        widths = [parts.get(part, 0.0) for parts in tiers.values()]
        axes.barh(list(tiers), widths, left=list(left.values()), label=part)
        left = {tier: left[tier] + width for tier, width in zip(tiers, widths, strict=True)}
    axes.set_xlabel("ms until the first token of 4,097")
    axes.legend()
    figure.savefig(path, dpi=120)
    return True


def _new(height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()
