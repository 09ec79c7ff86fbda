"""What a scenario is, and what comes of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

World = Literal["processes", "virtual", "model"]
Value = str | int | float
_RELATIONS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True)
class Setting:
    """What a run may vary.

    Attributes:
        minutes: of the world's own time; 0 where the scenario ends by itself.
    """

    nodes: int
    seed: int = 0
    minutes: float = 0.0


@dataclass(frozen=True)
class Check:
    """One part of a claim. `relation` is one of <=, >=, ==."""

    what: str
    found: float
    relation: str
    limit: float

    @property
    def holds(self) -> bool:
        return bool(_RELATIONS[self.relation](self.found, self.limit))


@dataclass(frozen=True)
class Curve:
    """A line of a plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Picture:
    """A plot; its scales are logarithmic where it says so."""

    x: str
    y: str
    curves: Sequence[Curve]
    is_log_x: bool = False
    is_log_y: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a run gave.

    Attributes:
        table: its rows; all have the same keys, which head the columns.
        trace: a hash over all that happened, of a virtual world.
    """

    table: Sequence[Mapping[str, Value]]
    checks: Sequence[Check]
    trace: str = ""
    picture: Picture | None = None

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


@dataclass(frozen=True)
class Scenario:
    """A claim that is tried on a world.

    Attributes:
        claim: in one sentence.
        rows: of CHECKLIST.md that it is about.
        faults: of SECURITY.md, with their figures.
        usual, quick: settings: the ones of the full set, and ones that take seconds.
        least: nodes without which there is nothing to see.
    """

    name: str
    claim: str
    rows: tuple[int, ...]
    world: World
    usual: Setting
    quick: Setting
    run: Callable[[Setting], Outcome]
    faults: tuple[str, ...] = ()
    least: int = 1


def figures(values: Mapping[str, Value]) -> list[dict[str, Value]]:
    """A table of one figure a row."""
    return [{"what": what, "found": found} for what, found in values.items()]
