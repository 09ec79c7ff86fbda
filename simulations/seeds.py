"""Runs that failed once (seeds.tsv): they are run again with every test run, for good."""

from __future__ import annotations

from pathlib import Path

from simulations.scenario import Setting

FILE = Path(__file__).with_suffix(".tsv")


def as_entry(name: str, setting: Setting) -> str:
    """A line of the file: the scenario, nodes, seed and minutes."""
    return f"{name}\t{setting.nodes}\t{setting.seed}\t{setting.minutes:g}"


def kept_runs() -> list[tuple[str, Setting]]:
    """All that are kept. What follows the four columns is a remark."""
    found = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, nodes, seed, minutes, *_ = line.split("\t")
            found.append((name, Setting(int(nodes), int(seed), float(minutes))))
    return found
