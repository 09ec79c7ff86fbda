"""The table of ratios, as text and JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Direction = Literal["at least", "at most"]


@dataclass(frozen=True)
class Goal:
    """One row of the table of ratios to reach."""

    name: str
    what: str
    direction: Direction
    floor: float
    goal: float


GOALS = {
    goal.name: goal
    for goal in (
        Goal("R1", "first token, 4,097 tokens: cold / all windows in L1", "at least", 40, 80),
        Goal("R2", "same: cold / in L2 only, page cache dropped", "at least", 25, 50),
        Goal("R2c", "same, the cap of L2 reached and eviction running", "at least", 25, 50),
        Goal("R3", "same: cold / all windows with a peer on loopback", "at least", 15, 25),
        Goal("R4", "warm (L1) first token / (forward + memcpy)", "at most", 2.0, 1.3),
        Goal("R5", "decode tok/s / the better stock cache (worst context)", "at least", 1.0, 1.5),
        Goal("R6", "cold prefill, stored / stock prefill (worst length)", "at least", 0.85, 1.0),
        Goal(
            "R7", "durable ingest of 64 KiB blocks / file write, same syncs", "at least", 0.5, 0.8
        ),
        Goal("R7c", "same, the cap reached and eviction running", "at least", 0.5, 0.8),
        Goal("R8", "64 KiB blocks of a peer, verified, stored / raw TCP", "at least", 0.4, 0.7),
        Goal("R9", "lease of 512 blocks and reading / memcpy", "at least", 0.5, 0.9),
        Goal(
            "R10", "first token, peers lying, stalled, gone / alone (worst)", "at most", 1.1, 1.05
        ),
        Goal("C1", "4,000-token conversation after a restart: first token", "at least", 15, 25),
        Goal("C2", "4 answers at once / one after another: tokens/s", "at least", 1.0, 2.0),
        Goal("G1", "a capability that was not seen before: ms to check", "at most", 0.2, 0.15),
        Goal("G2", "an encrypted 64 KiB block: us to open", "at most", 60, 40),
        Goal("G3", "looking at a window of a peer: % of computing it", "at most", 1.0, 0.5),
        Goal("R11", "8 conversations, one 2,048-token prompt: tokens", "at most", 2688, 2688),
    )
}


@dataclass(frozen=True)
class Row:
    """One measured ratio."""

    name: str
    value: float
    ours: str
    other: str

    @property
    def goal(self) -> Goal:
        return GOALS[self.name]

    @property
    def verdict(self) -> str:
        """goal, floor or below."""
        sign = 1 if self.goal.direction == "at least" else -1
        if sign * self.value >= sign * self.goal.goal:
            return "goal"
        return "floor" if sign * self.value >= sign * self.goal.floor else "BELOW"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    return {"cpu": cpu, "system": platform.system(), "python": platform.python_version()}


def as_text(rows: list[Row], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """The table for people, then where the time goes."""
    lines = [f"{'':4} {'what':58} {'ratio':>8} {'floor':>6} {'goal':>6}  verdict"]
    for row in rows:
        goal = row.goal
        lines.append(
            f"{row.name:4} {goal.what:58} {row.value:8.2f} {goal.floor:6g} {goal.goal:6g}"
            f"  {row.verdict:7} ours {row.ours}, other {row.other}"
        )
    for part, figures in parts.items():
        lines += ["", part]
        lines += [f"  {name:44} {_figure(value)}" for name, value in figures.items()]
    return "\n".join(lines)


def as_json(rows: list[Row], parts: Mapping[str, Mapping[str, Any]]) -> str:
    """The same for programs."""
    listed = [asdict(row) | {"verdict": row.verdict, "what": row.goal.what} for row in rows]
    return json.dumps({"machine": machine(), "ratios": listed, "parts": parts}, indent=1)


def _figure(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
