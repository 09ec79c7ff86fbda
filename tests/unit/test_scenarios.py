"""`python -m simulations`: every claim at three seeds, the runs that failed once, the command."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from simulations import __main__ as command
from simulations import plot, seeds
from simulations.catalogue import SCENARIOS
from simulations.scenario import Check, Outcome, Setting
from tests.architecture import ROOT
from tests.spec_table import read_checklist

VIRTUAL = [each for each in SCENARIOS.values() if each.world != "processes"]
# A crowd of getters, and whole nodes.
TRACED = (
    ["churn", "--nodes", "14", "--minutes", "1", "--seed", "3", "--json"],
    ["flock", "--nodes", "4", "--seed", "2", "--json"],
)


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    """The command keeps its peers quiet."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def rows_of(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.spec(*SCENARIOS[name].rows), pytest.mark.fault(*SCENARIOS[name].faults)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", [pytest.param(each.name, marks=rows_of(each.name)) for each in VIRTUAL]
)
def test_a_claim_holds(name: str, seed: int) -> None:
    outcome = SCENARIOS[name].run(replace(SCENARIOS[name].quick, seed=seed))
    assert outcome.holds, outcome.checks
    assert outcome.table
    assert len({tuple(row) for row in outcome.table}) == 1


@pytest.mark.parametrize(("name", "setting"), seeds.kept_runs())
def test_what_failed_once_holds(name: str, setting: Setting) -> None:
    outcome = SCENARIOS[name].run(setting)
    assert outcome.holds, outcome.checks


def test_a_kept_run_is_written_as_it_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(seeds, "FILE", tmp_path / "seeds.tsv")
    setting = Setting(14, 7, 0.5)
    seeds.FILE.write_text(f"# remark\n{seeds.as_entry('churn', setting)}\twhy\n")
    assert seeds.kept_runs() == [("churn", setting)]


def test_every_claim_has_rows_of_the_checklist() -> None:
    known = read_checklist()
    for scenario in SCENARIOS.values():
        assert {str(row) for row in scenario.rows} <= known.keys(), scenario.name
        assert scenario.claim.endswith(".")
        assert scenario.quick.nodes >= scenario.least


@pytest.mark.parametrize("words", TRACED)
def test_two_processes_that_order_sets_otherwise_agree(words: list[str]) -> None:
    """The trace hash, and all that is printed."""
    said = [
        subprocess.run(
            [sys.executable, "-m", "simulations", *words],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]
    assert len(json.loads(said[0])["trace"]) == 64


def test_the_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(SCENARIOS)
    assert command.main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(each.claim in out for each in SCENARIOS.values())


def outcome_of(found: float) -> Outcome:
    return Outcome([{"what": "x", "found": 1.5}], [Check("x", found, "<=", 1.0)], "ab")


@pytest.mark.parametrize(("found", "code", "word"), [(1.0, 0, "holds"), (1.1, 1, "fails")])
def test_the_exit_code_and_the_last_line_say_whether_it_holds(
    found: float,
    code: int,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = replace(SCENARIOS["churn"], run=lambda _: outcome_of(found))
    for name in SCENARIOS:
        monkeypatch.setitem(SCENARIOS, name, replace(one, name=name))
    assert command.main(["churn", "--seed", "7"]) == code
    shown = capsys.readouterr()
    assert shown.out.endswith(f"\nclaim {word}\n")
    assert ("churn\t50\t7\t10" in shown.err) is bool(code)
    assert command.main(["churn", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["holds"] is not bool(code)
    assert command.main(["all"]) == code


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["churn", "--nodes", "3"],
        ["churn", "--minutes", "0"],
        ["partition", "--minutes", "2"],
        ["all", "--plot", "x.png"],
    ],
)
def test_words_that_make_no_sense_end_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2


def test_without_matplotlib_a_plot_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plot.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        command.main(["scale", "--plot", "x.png"])
    assert ended.value.code == 2
    assert "hint: " in capsys.readouterr().err
