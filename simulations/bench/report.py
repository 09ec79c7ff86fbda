"""What was measured against what, and what came of it: as text and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Direction = Literal["at least", "at most"]
Verdict = Literal["goal", "floor", "BELOW", "FAILED", "not measured"]
MISSED: tuple[Verdict, ...] = ("BELOW", "FAILED")


@dataclass(frozen=True)
class Goal:
    """One row of what is to be reached.

    Attributes:
        against: the other side, measured in the same run.
    """

    name: str
    what: str
    direction: Direction
    floor: float
    goal: float
    against: str = ""

    def verdict(self, value: float) -> Verdict:
        """goal, floor or BELOW."""
        sign = 1 if self.direction == "at least" else -1
        if sign * value >= sign * self.goal:
            return "goal"
        return "floor" if sign * value >= sign * self.floor else "BELOW"


@dataclass(frozen=True)
class Row:
    """One measured figure: most are ratios of ours and the other side."""

    name: str
    value: float
    ours: str
    other: str


@dataclass
class Report:
    """Rows in the order of the goals.

    Attributes:
        parts: where the time goes, by measurement.
        failed: why a row has no figure, by its name.
    """

    goals: Sequence[Goal]
    is_quick: bool
    rows: dict[str, Row] = field(default_factory=dict)
    parts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    took_s: float = 0.0

    def verdict(self, goal: Goal) -> Verdict:
        """Of one row."""
        if goal.name in self.rows:
            return goal.verdict(self.rows[goal.name].value)
        return "FAILED" if goal.name in self.failed else "not measured"

    @property
    def missed(self) -> list[str]:
        """Rows that are below their floor, or failed."""
        return [goal.name for goal in self.goals if self.verdict(goal) in MISSED]


def machine() -> dict[str, Any]:
    """What the figures were measured on, and how busy it was with other things."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "load of the last minute": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def row_lines(report: Report, goal: Goal) -> list[str]:
    """A row for people, in two lines."""
    row = report.rows.get(goal.name)
    value = "" if row is None else f"{row.value:,.2f}"
    sign = ">=" if goal.direction == "at least" else "<="
    limits = f"{sign} {goal.floor:g}", f"{sign} {goal.goal:g}"
    lines = [
        f"{goal.name:9} {goal.what:64} {value:>9} {limits[0]:>9} {limits[1]:>9}"
        f"  {report.verdict(goal)}"
    ]
    if row is not None:
        lines.append(f"{'':9}   ours {row.ours}; {goal.against}: {row.other}")
    if goal.name in report.failed:
        lines.append(f"{'':9}   {report.failed[goal.name]}")
    return lines


def as_text(report: Report, about: Mapping[str, Any]) -> str:
    """The table for people, then where the time goes."""
    lines = [
        "gliad, measured" + (" quickly: few repetitions, short prompts" * report.is_quick),
        ", ".join(f"{name} {value}" for name, value in about.items()),
        f"in {report.took_s:,.0f} s; rows missed: {', '.join(report.missed) or 'none'}",
        "",
        f"{'':9} {'what':64} {'value':>9} {'floor':>9} {'goal':>9}  verdict",
    ]
    for goal in report.goals:
        lines += row_lines(report, goal)
    for part, figures in report.parts.items():
        lines += ["", part]
        lines += [f"  {name:52} {_figure(value)}" for name, value in figures.items()]
    return "\n".join(lines)


def as_json(report: Report, about: Mapping[str, Any]) -> str:
    """The same for programs."""
    listed = []
    for goal in report.goals:
        row = report.rows.get(goal.name)
        found = None if row is None else {"value": row.value, "ours": row.ours, "other": row.other}
        listed.append(
            asdict(goal)
            | (found or {"value": None, "ours": None, "other": None})
            | {"verdict": report.verdict(goal), "why": report.failed.get(goal.name)}
        )
    whole = {
        "machine": about,
        "quick": report.is_quick,
        "took_s": round(report.took_s, 1),
        "missed": report.missed,
        "rows": listed,
        "parts": report.parts,
    }
    return json.dumps(whole, indent=1)


def _figure(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
