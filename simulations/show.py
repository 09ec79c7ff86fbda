"""What a run gave, as text and as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from simulations.scenario import Check, Outcome, Scenario, Setting, Value


def as_text(value: Value) -> str:
    """A value of a table."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


def table(rows: Sequence[Mapping[str, Value]]) -> str:
    """Columns as wide as what stands in them, numbers to the right."""
    if not rows:
        return ""
    lines = [list(rows[0]), *[[as_text(value) for value in row.values()] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_text = [isinstance(value, str) for value in rows[0].values()]
    return "\n".join(
        "  ".join(
            f"{word:<{width}}" if left else f"{word:>{width}}"
            for word, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in lines
    )


def as_line(check: Check) -> str:
    """One part of a claim."""
    word = "holds" if check.holds else "FAILS"
    limit = f"{check.relation} {as_text(check.limit)}"
    return f"{word}  {check.what}: {as_text(check.found)} ({limit})"


def verdict(outcome: Outcome) -> str:
    """The last line."""
    return f"claim {'holds' if outcome.holds else 'fails'}"


def report(scenario: Scenario, outcome: Outcome) -> str:
    """All of it."""
    lines = [scenario.claim, "", table(outcome.table), "", *map(as_line, outcome.checks)]
    if outcome.trace:
        lines.append(f"trace {outcome.trace}")
    return "\n".join([*lines, verdict(outcome)])


def described(scenario: Scenario) -> dict[str, Any]:
    """What `list` says of one."""
    return {
        "name": scenario.name,
        "claim": scenario.claim,
        "rows": list(scenario.rows),
        "faults": list(scenario.faults),
        "world": scenario.world,
        "nodes": scenario.usual.nodes,
        "minutes": scenario.usual.minutes,
    }


def as_values(scenario: Scenario, setting: Setting, outcome: Outcome) -> dict[str, Any]:
    """All of a run as plain values; those of a virtual world are the same for the same seed."""
    return {
        **described(scenario),
        "setting": asdict(setting),
        "table": [dict(row) for row in outcome.table],
        "checks": [{**asdict(check), "holds": check.holds} for check in outcome.checks],
        "trace": outcome.trace,
        "holds": outcome.holds,
    }
